"""Which plant is this pollen from? A small residual network on pictures that lie in tar shards."""

import argparse
import io
import tempfile

import torch
from archive import member_ranges, read_range, write_shards
from grains import make_grains
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2


class PollenShards(Dataset):
    def __init__(self, places, labels, transform):
        self.places, self.labels, self.transform = places, labels, transform
        self.ranges = member_ranges({shard for shard, _ in places})

    def __len__(self):
        return len(self.places)

    def __getitem__(self, index):
        shard, name = self.places[index]
        data = read_range(shard, *self.ranges[shard, name])
        return self.transform(Image.open(io.BytesIO(data)).convert("RGB")), self.labels[index]


class Residual(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.skip = nn.Conv2d(inputs, outputs, 1, 2, bias=False)

    def forward(self, x):
        return torch.relu(self.body(x) + self.skip(x))


def train(args, folder):
    items, labels = make_grains(args.pictures, args.kinds, args.side, seed=4)
    places = write_shards(folder, items, args.per_shard)
    transform = v2.Compose(
        [v2.ToImage(), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.4], [0.3])]
    )
    dataset = PollenShards(places, labels, transform)
    loader = DataLoader(dataset, args.batch_size, shuffle=True, drop_last=True, num_workers=args.workers)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 5, 2, 2, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(inplace=True),
        Residual(16, 32),
        Residual(32, 64),
        Residual(64, 96),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(96, args.kinds),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(args.epochs):
        for pictures, targets in loader:
            loss = criterion(model(pictures), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pictures", type=int, default=1600)
    parser.add_argument("--per-shard", type=int, default=80)
    parser.add_argument("--kinds", type=int, default=8)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        train(args, folder)


if __name__ == "__main__":
    main()
