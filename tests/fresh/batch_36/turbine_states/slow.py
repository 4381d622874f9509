"""Wear of wind turbines from long records of vibration: stacked layers of diagonal linear state spaces."""

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset, random_split

STATES = ("sound", "imbalance", "bearing", "gear tooth", "loose bolt")


@dataclass
class Config:
    records: int = 960
    length: int = 160
    channels: int = 3
    width: int = 48
    states: int = 4
    layers: int = 2
    batch_size: int = 24
    epochs: int = 4
    lr: float = 3e-3
    seed: int = 60


def measure(config: Config) -> TensorDataset:
    """Three axes of a sensor: rotation, its harmonics, bursts of a damaged bearing, knocks of a tooth."""
    generator = torch.Generator().manual_seed(config.seed)
    kind = torch.randint(len(STATES), (config.records,), generator=generator)
    time = torch.arange(config.length)
    speed = 0.15 + 0.1 * torch.rand(config.records, 1, generator=generator)
    phase = 2 * math.pi * torch.rand(config.records, 1, generator=generator)
    angle = speed * time + phase
    of = [(kind == number).unsqueeze(1).float() for number in range(len(STATES))]
    rotation = (0.4 + 0.6 * of[1]) * torch.sin(angle)
    bursts = of[2] * torch.relu(torch.sin(3.7 * angle)) ** 8 * torch.sin(2.4 * time)
    knocks = of[3] * (torch.sin(angle) > 0.98).float()
    rattle = of[4] * torch.sign(torch.sin(0.5 * angle)) * torch.sin(1.7 * time)
    mixing = torch.tensor([[1.0, 0.3, 0.2], [0.5, 1.0, 0.4], [0.2, 0.6, 1.0], [0.7, 0.2, 0.8]])
    signal = torch.stack([rotation, bursts, knocks, 0.5 * rattle], dim=-1) @ mixing
    signal = signal + 0.4 * torch.randn(signal.shape, generator=generator)
    return TensorDataset(signal, kind)


class StateSpace(nn.Module):
    """Each channel drives a few states, which decay at rates of their own and are added up."""

    def __init__(self, width: int, states: int):
        super().__init__()
        self.log_rate = nn.Parameter(torch.linspace(math.log(0.01), math.log(0.7), states).repeat(width, 1))
        self.drive = nn.Parameter(torch.randn(width, states) / states**0.5)
        self.read = nn.Parameter(torch.randn(width, states) / states**0.5)
        self.skip = nn.Parameter(torch.ones(width))

    def forward(self, u: Tensor) -> Tensor:
        decay = torch.exp(-self.log_rate.exp())
        state = u.new_zeros(len(u), *decay.shape)
        outputs = []
        for t in range(u.shape[1]):
            state = decay * state + self.drive * u[:, t].unsqueeze(-1)
            outputs.append((self.read * state).sum(-1))
        return torch.stack(outputs, dim=1) + self.skip * u


class Block(nn.Module):
    def __init__(self, width: int, states: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.memory = StateSpace(width, states)
        self.mix = nn.Linear(width, 2 * width)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.glu(self.mix(F.gelu(self.memory(self.norm(x)))), dim=-1)


class WearNet(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.inner = nn.Linear(config.channels, config.width)
        self.blocks = nn.Sequential(*(Block(config.width, config.states) for _ in range(config.layers)))
        self.head = nn.Linear(config.width, len(STATES))

    def forward(self, signal: Tensor) -> Tensor:
        return self.head(self.blocks(self.inner(signal)).mean(dim=1))


@torch.inference_mode()
def evaluate(model: WearNet, loader: DataLoader) -> float:
    model.eval()
    right = sum((model(signal).argmax(1) == kind).sum() for signal, kind in loader)
    return int(right) / len(loader.dataset)


def main() -> None:
    config = Config()
    torch.manual_seed(config.seed)
    train_set, test_set = random_split(measure(config), [0.9, 0.1])
    train_loader = DataLoader(train_set, config.batch_size, shuffle=True, drop_last=True)
    test_loader = DataLoader(test_set, 2 * config.batch_size)
    model = WearNet(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, config.lr, total_steps=config.epochs * len(train_loader))
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(config.epochs):
            model.train()
            losses = []
            for signal, kind in train_loader:
                loss = F.cross_entropy(model(signal), kind)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                scheduler.step()
                losses.append(loss.detach())
            print(f"epoch {epoch}: loss {torch.stack(losses).mean():.4f}, accuracy {evaluate(model, test_loader):.3f}")
            torch.save(model.state_dict(), Path(folder, f"epoch_{epoch}.pt"))


if __name__ == "__main__":
    main()
