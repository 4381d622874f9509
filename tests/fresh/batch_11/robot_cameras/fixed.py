"""Imitation learning from two cameras of a robot arm: a chunk of actions from what the cameras see."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

CAMERAS = ("front", "wrist")


class Episodes(Dataset):
    def __init__(self, frames, side, chunk, seed):
        gen = torch.Generator().manual_seed(seed)
        self.images = {
            name: torch.randint(0, 256, (frames, 3, side, side), dtype=torch.uint8, generator=gen) for name in CAMERAS
        }
        self.state = torch.randn(frames + chunk, 7, generator=gen).cumsum(0) * 0.05
        self.chunk = chunk

    def __len__(self):
        return len(self.images["front"])

    def __getitem__(self, index):
        item = {name: images[index] for name, images in self.images.items()}
        item["state"] = self.state[index]
        item["action"] = self.state[index + 1 : index + 1 + self.chunk]
        return item


class Policy(nn.Module):
    def __init__(self, chunk, width=64):
        super().__init__()
        self.chunk = chunk
        self.vision = nn.Sequential(
            nn.Conv2d(3, 16, 5, stride=4, padding=2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(512, width),
        )
        self.head = nn.Sequential(nn.Linear(2 * width + 7, 128), nn.ReLU(), nn.Linear(128, 7 * chunk))

    def forward(self, batch):
        seen = [self.vision(batch[name]) for name in CAMERAS]
        return self.head(torch.cat([*seen, batch["state"]], dim=1)).view(-1, self.chunk, 7)


def build_transforms():
    return v2.Compose(
        [
            v2.ToDtype(torch.float32, scale=True),
            v2.ColorJitter(brightness=0.2, contrast=0.2),
            v2.RandomAffine(degrees=5, translate=(0.05, 0.05)),
            v2.Normalize([0.5] * 3, [0.25] * 3),
        ]
    )


def train(steps=150, batch_size=32, chunk=10):
    torch.manual_seed(1000)
    transforms = build_transforms()
    dataset = Episodes(600, 48, chunk, seed=1)
    loader = DataLoader(dataset, batch_size=batch_size, shuffle=True, drop_last=True)
    policy = Policy(chunk)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4)
    step = 0
    while step < steps:
        for batch in loader:
            for name in CAMERAS:
                batch[name] = transforms(batch[name])
            loss = (policy(batch) - batch["action"]).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 30 == 0:
                print(f"step {step}: l1 {loss.item():.4f}")
            step += 1


if __name__ == "__main__":
    train()
