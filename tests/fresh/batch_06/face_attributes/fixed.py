"""Age, gender and expression of faces by one network with a shared trunk and three heads."""

import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, Dataset

SIZE = 64


def draw_faces(folder, count, seed):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[-1 : 1 : SIZE * 1j, -1 : 1 : SIZE * 1j]
    rows = []
    for i in range(count):
        age, gender, expression = rng.uniform(10, 80), rng.integers(2), rng.integers(5)
        face = np.full((SIZE, SIZE, 3), 90.0)
        inside = (xx / (0.6 + 0.1 * gender)) ** 2 + (yy / 0.85) ** 2 < 1
        face[inside] = (225 - age, 180 - age * 0.8, 150 - age * 0.7)
        mouth = np.abs(yy - 0.4 + 0.25 * (expression - 2) * (xx**2 - 0.1)) < 0.05
        face[mouth & (np.abs(xx) < 0.35)] = (150, 30, 40)
        face += rng.normal(0, 14, face.shape)
        Image.fromarray(face.clip(0, 255).astype(np.uint8)).save(os.path.join(folder, f"{i:05d}.jpg"), quality=90)
        rows.append(f"{i:05d}.jpg,{age:.1f},{gender},{expression}")
    with open(os.path.join(folder, "labels.csv"), "w") as file:
        file.write("\n".join(rows))


class Faces(Dataset):
    def __init__(self, folder):
        self.rows = []
        with open(os.path.join(folder, "labels.csv")) as file:
            for line in file:
                name, age, gender, expression = line.strip().split(",")
                with Image.open(os.path.join(folder, name)) as image:
                    pixels = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1)
                self.rows.append((pixels, float(age), int(gender), int(expression)))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        pixels, age, gender, expression = self.rows[i]
        return pixels.float().div_(255), torch.tensor(age / 100), gender, expression


class MultiTaskNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        layers, cin = [], 3
        for cout, stride in ((width, 2), (width, 1), (2 * width, 2), (2 * width, 1), (4 * width, 2), (4 * width, 1)):
            layers += [nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True)]
            cin = cout
        self.trunk = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.age = nn.Sequential(nn.Linear(cin, 64), nn.ReLU(), nn.Linear(64, 1))
        self.gender = nn.Linear(cin, 2)
        self.expression = nn.Linear(cin, 5)

    def forward(self, x):
        shared = self.trunk(x)
        return self.age(shared).squeeze(1), self.gender(shared), self.expression(shared)


def train_epoch(net, loader, optimizer):
    net.train()
    sums = {"age": 0.0, "gender": 0.0, "expression": 0.0}
    for image, age, gender, expression in loader:
        pred_age, pred_gender, pred_expression = net(image)
        losses = {
            "age": F.smooth_l1_loss(pred_age, age) * 10,
            "gender": F.cross_entropy(pred_gender, gender),
            "expression": F.cross_entropy(pred_expression, expression),
        }
        optimizer.zero_grad()
        sum(losses.values()).backward()
        optimizer.step()
        for task, loss in losses.items():
            sums[task] += loss.item() / len(loader)
    return sums


def main():
    torch.manual_seed(21)
    with tempfile.TemporaryDirectory() as folder:
        draw_faces(folder, 960, seed=21)
        faces = Faces(folder)
    loader = DataLoader(faces, batch_size=32, shuffle=True, drop_last=True)
    net = MultiTaskNet()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4, fused=True)
    for epoch in range(5):
        sums = train_epoch(net, loader, optimizer)
        print(f"[{epoch + 1}] " + "  ".join(f"{task} {value:.4f}" for task, value in sums.items()))


if __name__ == "__main__":
    main()
