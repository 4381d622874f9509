"""Depth, surface normals and segmentation of rooms from one encoder with three decoders."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Rooms(Dataset):
    """A floor, a back wall and a box in front of them."""

    def __init__(self, count, size, seed):
        generator = torch.Generator().manual_seed(seed)
        y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
        self.items = []
        for _ in range(count):
            horizon = int(torch.randint(size // 4, size // 2, (), generator=generator))
            left, top = torch.randint(4, size // 2, (2,), generator=generator).tolist()
            extent = int(torch.randint(size // 6, size // 3, (), generator=generator))
            floor = y > horizon
            box = (x >= left) & (x < left + extent) & (y >= top) & (y < top + extent)
            labels = torch.where(box, 2, floor.long())
            depth = torch.where(floor, 1.0 - (y - horizon) / size, torch.ones(()))
            depth = torch.where(box, torch.tensor(0.4), depth)
            normals = F.one_hot(labels, 3).permute(2, 0, 1).float()
            image = 0.6 * normals + 0.4 * depth + 0.1 * torch.randn(3, size, size, generator=generator)
            self.items.append((image, labels, depth[None], normals))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        image, labels, depth, normals = self.items[index]
        return image, {"segmentation": labels, "depth": depth, "normals": normals}


def double_conv(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class Encoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stem = double_conv(3, width)
        self.middle = double_conv(width, 2 * width)
        self.deep = double_conv(2 * width, 4 * width)

    def forward(self, x):
        x = F.max_pool2d(self.stem(x), 2)
        x = F.max_pool2d(self.middle(x), 2)
        return self.deep(x)


class TaskHead(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, 24, 1), nn.ReLU(inplace=True), nn.Conv2d(24, outputs, 3, padding=1)
        )

    def forward(self, features, size):
        return F.interpolate(self.layers(features), size=size, mode="bilinear", align_corners=False)


class MultiTaskNet(nn.Module):
    outputs = {"segmentation": 3, "depth": 1, "normals": 3}

    def __init__(self, width):
        super().__init__()
        self.encoder = Encoder(width)
        self.heads = nn.ModuleDict({task: TaskHead(4 * width, n) for task, n in self.outputs.items()})

    def forward(self, x):
        features = self.encoder(x)
        return {task: head(features, x.shape[-2:]) for task, head in self.heads.items()}


def task_losses(predictions, targets):
    normals = F.normalize(predictions["normals"], dim=1)
    return {
        "segmentation": F.cross_entropy(predictions["segmentation"], targets["segmentation"]),
        "depth": F.l1_loss(predictions["depth"], targets["depth"]),
        "normals": 1 - (normals * targets["normals"]).sum(1).mean(),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rooms", type=int, default=240)
    parser.add_argument("--size", type=int, default=80)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()

    torch.manual_seed(9)
    loader = DataLoader(Rooms(args.rooms, args.size, seed=9), args.batch_size, shuffle=True)
    model = MultiTaskNet(args.width)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    weights = {"segmentation": 1.0, "depth": 2.0, "normals": 1.0}
    for epoch in range(args.epochs):
        totals = {task: torch.zeros(()) for task in weights}
        for images, targets in loader:
            losses = task_losses(model(images), targets)
            optimizer.zero_grad()
            sum(weights[task] * loss for task, loss in losses.items()).backward()
            optimizer.step()
            for task, loss in losses.items():
                totals[task] += loss.detach()
        scheduler.step()
        print(f"epoch {epoch}: " + " ".join(f"{t} {v.item() / len(loader):.4f}" for t, v in totals.items()))


if __name__ == "__main__":
    main()
