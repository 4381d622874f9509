"""Which deer shed an antler: residual network over drawn outlines, with accelerate."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

SPECIES = ("roe deer", "red deer", "fallow deer", "elk", "reindeer")


@dataclass
class TrainingConfig:
    antlers: int = 1280
    size: int = 40
    width: int = 32
    batch_size: int = 16
    micro_batch: int = 2
    epochs: int = 2
    lr: float = 3e-3
    weight_decay: float = 0.02
    clip: float = 1.0
    seed: int = 88

    @property
    def accumulation(self) -> int:
        return self.batch_size // self.micro_batch


class AntlerDrawings(Dataset):
    """Each antler is a bent beam with tines, whose number and angle depend on the species."""

    def __init__(self, config: TrainingConfig):
        generator = torch.Generator().manual_seed(config.seed)
        self.labels = torch.randint(len(SPECIES), (config.antlers,), generator=generator)
        self.images = torch.stack([self.draw(int(label), config.size, generator) for label in self.labels])

    @staticmethod
    def draw(label: int, size: int, generator: torch.Generator) -> torch.Tensor:
        image = 0.25 * torch.rand(1, size, size, generator=generator)
        bend = 0.3 + 0.25 * label + 0.15 * torch.randn((), generator=generator).item()
        along = torch.linspace(0, 1, 2 * size)
        x = 0.2 + 0.5 * along + 0.12 * torch.sin(math.pi * bend * along)
        y = 0.9 - 0.75 * along
        for tine in range(1, label + 3):
            start = tine * 2 * size // (label + 4)
            reach = along[: size // 2] * (0.25 + 0.05 * label)
            angle = 0.6 + 0.2 * torch.randn((), generator=generator).item()
            x = torch.cat([x, x[start] + reach * math.sin(angle)])
            y = torch.cat([y, y[start] - reach * math.cos(angle)])
        columns = (x * size).long().clamp(0, size - 1)
        rows = (y * size).long().clamp(0, size - 1)
        image[0, rows, columns] = 1.0
        return image

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.images[index], self.labels[index]


class Residual(nn.Module):
    def __init__(self, inner: int, outer: int, stride: int):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inner, outer, 3, stride, 1, bias=False),
            nn.GroupNorm(8, outer),
            nn.ReLU(inplace=True),
            nn.Conv2d(outer, outer, 3, 1, 1, bias=False),
            nn.GroupNorm(8, outer),
        )
        self.skip = nn.Conv2d(inner, outer, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.skip(x))


def residual_network(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, width, 5, 2, 2, bias=False),
        nn.GroupNorm(8, width),
        nn.ReLU(inplace=True),
        Residual(width, width, 1),
        Residual(width, 2 * width, 2),
        Residual(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, len(SPECIES)),
    )


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader, accelerator: Accelerator) -> float:
    model.eval()
    hits = []
    for images, labels in loader:
        predicted, labels = accelerator.gather_for_metrics((model(images).argmax(-1), labels))
        hits.append(predicted == labels)
    return torch.cat(hits).float().mean().item()


def main() -> None:
    config = TrainingConfig()
    set_seed(config.seed)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=config.accumulation)
    drawings = AntlerDrawings(config)
    border = int(0.875 * len(drawings))
    train_set = Subset(drawings, range(border))
    test_set = Subset(drawings, range(border, len(drawings)))
    train_loader = DataLoader(train_set, batch_size=config.micro_batch, shuffle=True, drop_last=True)
    test_loader = DataLoader(test_set, batch_size=64)

    model = residual_network(config.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, weight_decay=config.weight_decay)
    model, optimizer, train_loader, test_loader = accelerator.prepare(model, optimizer, train_loader, test_loader)

    for epoch in range(config.epochs):
        model.train()
        total = torch.zeros((), device=accelerator.device)
        for images, labels in train_loader:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(images), labels)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), config.clip)
                optimizer.step()
                optimizer.zero_grad()
            total += loss.detach()
        accuracy = evaluate(model, test_loader, accelerator)
        mean = total.item() / len(train_loader)
        accelerator.print(f"epoch {epoch}: loss {mean:.3f}, accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
