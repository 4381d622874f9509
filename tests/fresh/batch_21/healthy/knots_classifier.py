"""Kinds of sailors' knots from small pictures: a residual network, augmented for a whole batch at once."""

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    pictures: int = 4096
    size: int = 32
    kinds: int = 10
    batch_size: int = 128
    epochs: int = 4
    width: int = 32
    lr: float = 0.1
    smoothing: float = 0.1
    seed: int = 8


def make_knots(config, count, seed):
    """Ropes are drawn as sums of waves whose frequencies depend on the kind; bytes, as they come from a camera."""
    generator = torch.Generator().manual_seed(seed)
    kinds = torch.randint(0, config.kinds, (count,), generator=generator)
    axis = torch.linspace(0, 2 * torch.pi, config.size)
    shift = torch.rand(count, 2, generator=generator) * 2 * torch.pi
    first = torch.sin(axis[None] * (1 + kinds[:, None] % 5) + shift[:, :1])
    second = torch.cos(axis[None] * (1 + kinds[:, None] // 5) + shift[:, 1:])
    rope = first[:, :, None] * second[:, None, :]
    pictures = rope[:, None] * torch.rand(count, 3, 1, 1, generator=generator) + 0.3 * torch.randn(
        count, 3, config.size, config.size, generator=generator
    )
    return (pictures * 60 + 128).clamp(0, 255).to(torch.uint8), kinds


class Batches:
    """Goes through pictures in memory in a new order each time; crops and mirrors whole batches."""

    def __init__(self, pictures, kinds, batch_size, training):
        self.pictures = F.pad(pictures, (2, 2, 2, 2)) if training else pictures
        self.kinds, self.batch_size, self.training = kinds, batch_size, training
        self.size = pictures.shape[-1]

    def __len__(self):
        return len(self.kinds) // self.batch_size

    def prepare(self, pictures):
        if self.training:
            top, left = torch.randint(0, 5, (2,)).tolist()
            pictures = pictures[:, :, top : top + self.size, left : left + self.size]
            if torch.rand(()) < 0.5:
                pictures = pictures.flip(3)
        scaled = pictures.float().sub_(128).div_(64)
        return scaled.contiguous(memory_format=torch.channels_last)

    def __iter__(self):
        count = len(self) * self.batch_size
        order = torch.randperm(len(self.kinds))[:count] if self.training else torch.arange(count)
        for picked in order.split(self.batch_size):
            yield self.prepare(self.pictures[picked]), self.kinds[picked]


class Residual(nn.Module):
    def __init__(self, inner, outer, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outer)
        self.skip = nn.Conv2d(inner, outer, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(y)) + self.skip(x), inplace=True)


def build_network(config):
    w = config.width
    return nn.Sequential(
        nn.Conv2d(3, w, 3, 2, 1, bias=False),
        nn.BatchNorm2d(w),
        nn.ReLU(inplace=True),
        Residual(w, w, 1),
        Residual(w, 2 * w, 2),
        Residual(2 * w, 4 * w, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * w, config.kinds),
    ).to(memory_format=torch.channels_last)


@torch.inference_mode()
def accuracy(model, batches):
    model.eval()
    hits = sum((model(pictures).argmax(1) == kinds).sum() for pictures, kinds in batches)
    return hits.item() / (len(batches) * batches.batch_size)


def main():
    config = Config()
    torch.manual_seed(config.seed)
    train_batches = Batches(*make_knots(config, config.pictures, config.seed), config.batch_size, training=True)
    test_batches = Batches(*make_knots(config, 1024, config.seed + 1), 256, training=False)
    model = build_network(config)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=config.lr, momentum=0.9, weight_decay=5e-4, nesterov=True, fused=True
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.epochs * len(train_batches))
    for epoch in range(config.epochs):
        model.train()
        total = torch.zeros(())
        for pictures, kinds in train_batches:
            loss = F.cross_entropy(model(pictures), kinds, label_smoothing=config.smoothing)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.detach()
        print(f"epoch {epoch}: loss {total.item() / len(train_batches):.3f}, hits {accuracy(model, test_batches):.3f}")


if __name__ == "__main__":
    main()
