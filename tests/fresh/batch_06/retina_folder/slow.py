"""Grading of retina photographs: a folder of JPEG files per grade and a small residual network."""

import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from PIL import Image
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

BATCH_SIZE = 24
NUM_EPOCHS = 5
GRADES = ["0_none", "1_mild", "2_severe"]


def make_photos(root, per_grade, seed):
    """Round, reddish photographs; a higher grade has more bright spots."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:420, 0:560]
    disc = ((yy - 210) ** 2 + (xx - 280) ** 2 < 200**2)[..., None]
    for grade, name in enumerate(GRADES):
        folder = os.path.join(root, name)
        os.makedirs(folder)
        for i in range(per_grade):
            photo = np.empty((420, 560, 3), dtype=np.float32)
            photo[:] = np.array([150, 70, 40]) + rng.normal(0, 12, 3)
            photo += rng.normal(0, 8, (420, 560, 1))
            for y, x in rng.integers(80, 340, (2 + 6 * grade, 2)):
                photo[y - 7 : y + 7, x + 63 : x + 77] = (230, 210, 120)
            Image.fromarray((photo * disc).clip(0, 255).astype(np.uint8)).save(os.path.join(folder, f"{i:04d}.jpg"))


class ResidualBlock(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.down = nn.Conv2d(cin, cout, 1, stride, bias=False)

    def forward(self, x):
        out = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(out)) + self.down(x))


class GradeNet(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 5, 2, 2, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2))
        self.blocks = nn.Sequential(ResidualBlock(32, 64, 1), ResidualBlock(64, 128, 2))
        self.fc = nn.Linear(128, num_classes)

    def forward(self, x):
        return self.fc(self.blocks(self.stem(x)).mean(dim=(2, 3)))


def train_model(model, dataloaders, criterion, optimizer, scheduler, num_epochs):
    best_acc = 0.0
    for epoch in range(num_epochs):
        since = time.time()
        for phase in ["train", "val"]:
            model.train(phase == "train")
            running_loss, running_corrects, seen = 0.0, 0, 0
            for inputs, labels in dataloaders[phase]:
                with torch.set_grad_enabled(phase == "train"):
                    outputs = model(inputs)
                    loss = criterion(outputs, labels)
                    if phase == "train":
                        optimizer.zero_grad()
                        loss.backward()
                        optimizer.step()
                running_loss += loss.item() * inputs.size(0)
                running_corrects += (outputs.argmax(1) == labels).sum().item()
                seen += inputs.size(0)
            print(f"{epoch} {phase} loss {running_loss / seen:.4f} acc {running_corrects / seen:.3f}")
            if phase == "val":
                best_acc = max(best_acc, running_corrects / seen)
        scheduler.step()
        print(f"epoch took {time.time() - since:.1f} s")
    return best_acc


def main():
    torch.manual_seed(11)
    normalize = transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    data_transforms = {
        "train": transforms.Compose(
            [
                transforms.RandomResizedCrop(112, scale=(0.6, 1.0)),
                transforms.RandomHorizontalFlip(),
                transforms.ColorJitter(0.2, 0.2),
                transforms.ToTensor(),
                normalize,
            ]
        ),
        "val": transforms.Compose([transforms.Resize((112, 112)), transforms.ToTensor(), normalize]),
    }
    with tempfile.TemporaryDirectory() as data_dir:
        make_photos(os.path.join(data_dir, "train"), 96, seed=1)
        make_photos(os.path.join(data_dir, "val"), 8, seed=2)
        image_datasets = {
            x: datasets.ImageFolder(os.path.join(data_dir, x), data_transforms[x]) for x in ["train", "val"]
        }
        dataloaders = {
            x: DataLoader(image_datasets[x], batch_size=BATCH_SIZE, shuffle=x == "train") for x in ["train", "val"]
        }
        model = GradeNet(len(GRADES))
        optimizer = optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
        scheduler = lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.3)
        best = train_model(model, dataloaders, nn.CrossEntropyLoss(), optimizer, scheduler, NUM_EPOCHS)
        print(f"best val acc {best:.3f}")


if __name__ == "__main__":
    main()
