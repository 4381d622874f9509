"""Land cover in aerial tiles: big tiles in memory, random crops of them, and a small encoder and decoder."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import tv_tensors
from torchvision.transforms import v2

TILE, CROP, CLASSES = 320, 64, 6
MEAN, STD = [0.36, 0.37, 0.33, 0.40], [0.14, 0.14, 0.14, 0.15]


class AerialTiles(Dataset):
    def __init__(self, tiles, length, transforms=None, seed=0):
        g = torch.Generator().manual_seed(seed)
        coarse = torch.randn(tiles, CLASSES, 14, 14, generator=g)
        self.masks = F.interpolate(coarse, size=TILE, mode="bilinear").argmax(1)
        colours = torch.randint(40, 200, (CLASSES, 4), generator=torch.Generator().manual_seed(9))
        noise = torch.randint(0, 50, (tiles, 4, TILE, TILE), generator=g)
        self.images = (colours[self.masks].permute(0, 3, 1, 2) + noise).to(torch.uint8)
        self.length, self.transforms = length, transforms

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        tile = i % len(self.images)
        sample = {"image": tv_tensors.Image(self.images[tile]), "mask": tv_tensors.Mask(self.masks[tile])}
        return self.transforms(sample) if self.transforms else sample


class TileDataModule:
    def __init__(self, batch_size, length):
        self.batch_size, self.length = batch_size, length
        self.train_aug = v2.Compose(
            [
                v2.ToDtype({tv_tensors.Image: torch.float32, "others": None}, scale=True),
                v2.Normalize(mean=MEAN, std=STD),
                v2.RandomCrop(CROP),
                v2.RandomHorizontalFlip(0.5),
                v2.RandomVerticalFlip(0.5),
            ]
        )
        self.val_aug = v2.Compose(
            [
                v2.CenterCrop(2 * CROP),
                v2.ToDtype({tv_tensors.Image: torch.float32, "others": None}, scale=True),
                v2.Normalize(mean=MEAN, std=STD),
            ]
        )

    def setup(self):
        self.train = AerialTiles(24, self.length, self.train_aug)
        self.val = AerialTiles(8, 8, self.val_aug, seed=1)

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val, batch_size=4)


class SegmentationTask(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.enter = nn.Sequential(nn.Conv2d(4, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.deep = nn.Sequential(
            nn.Conv2d(width, 2 * width, 3, 2, 1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.Conv2d(2 * width, 2 * width, 3, 1, 1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
        )
        self.leave = nn.Conv2d(3 * width, CLASSES, 3, 1, 1)

    def forward(self, x):
        a = self.enter(x)
        y = F.interpolate(self.deep(a), scale_factor=2)
        return F.interpolate(self.leave(torch.cat([a, y], 1)), scale_factor=2)

    def training_step(self, batch):
        return F.cross_entropy(self(batch["image"]), batch["mask"])

    @torch.no_grad()
    def validate(self, loader):
        self.eval()
        right = [(self(batch["image"]).argmax(1) == batch["mask"]).float().mean() for batch in loader]
        self.train()
        return torch.stack(right).mean().item()


def main(epochs=3):
    torch.manual_seed(0)
    data, task = TileDataModule(16, 960), SegmentationTask()
    data.setup()
    optimizer = torch.optim.AdamW(task.parameters(), lr=2e-3)
    for epoch in range(epochs):
        for batch in data.train_dataloader():
            loss = task.training_step(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        accuracy = task.validate(data.val_dataloader())
        print(f"epoch {epoch} loss {loss.item():.4f} val accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
