"""Loosening rivets heard in vibrations: convolutions, with evaluation, early stopping and the best weights."""

import argparse
import copy
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn


def record(count: int, length: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Vibrations of rivets: a loose one rattles, at a frequency of its own and only now and then."""
    generator = torch.Generator().manual_seed(seed)
    time = torch.arange(length) / length
    tone = torch.rand(count, 1, generator=generator) * 30 + 10
    signal = torch.sin(2 * torch.pi * tone * time) + 0.7 * torch.randn(count, length, generator=generator)
    state = torch.randint(0, 4, (count,), generator=generator)
    rattle = torch.sin(2 * torch.pi * (70 + 15 * state[:, None]) * time)
    bursts = (torch.sin(2 * torch.pi * 3 * (time + torch.rand(count, 1, generator=generator))) > 0.5).float()
    signal = signal + 0.5 * rattle * bursts * (state[:, None] > 0)
    return signal[:, None], state


class RivetNet(nn.Module):
    def __init__(self, width: int, states: int = 4):
        super().__init__()
        widths = [1, width, width, 2 * width, 2 * width]
        layers: list[nn.Module] = []
        for before, after in zip(widths, widths[1:]):
            layers += [
                nn.Conv1d(before, after, 9, stride=2, padding=4, bias=False),
                nn.BatchNorm1d(after),
                nn.ReLU(inplace=True),
            ]
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(2 * width, states)

    def forward(self, signals):
        return self.head(self.features(signals).mean(dim=2))


class Best:
    """Keeps the best weights in memory, and writes them once an epoch if they became better."""

    def __init__(self, path: Path, patience: int):
        self.path = path
        self.patience = patience
        self.score = 0.0
        self.state: dict | None = None
        self.bad = 0

    def offer(self, score: float, model: nn.Module) -> bool:
        if score > self.score:
            self.score, self.bad = score, 0
            self.state = copy.deepcopy(model.state_dict())
            torch.save(self.state, self.path)
        else:
            self.bad += 1
        return self.bad >= self.patience


@torch.inference_mode()
def evaluate(model: nn.Module, signals: torch.Tensor, states: torch.Tensor) -> float:
    model.eval()
    guessed = torch.cat([model(part).argmax(dim=1) for part in signals.split(256)])
    model.train()
    return (guessed == states).float().mean().item()


def train(args: argparse.Namespace, folder: Path) -> None:
    torch.manual_seed(args.seed)
    signals, states = record(args.signals, args.length, args.seed)
    held_signals, held_states = record(400, args.length, args.seed + 1)
    model = RivetNet(args.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    steps = args.epochs * (len(signals) // args.batch_size)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=args.lr, total_steps=steps)
    best = Best(folder / "best.pt", patience=4)
    for epoch in range(args.epochs):
        order = torch.randperm(len(signals))
        total = torch.zeros(())
        for rows in order[: len(order) // args.batch_size * args.batch_size].split(args.batch_size):
            loss = F.cross_entropy(model(signals[rows]), states[rows])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.detach()
        score = evaluate(model, held_signals, held_states)
        print(f"epoch {epoch}: loss {total.item() / (len(signals) // args.batch_size):.4f}, accuracy {score:.4f}")
        if best.offer(score, model):
            break
    model.load_state_dict(torch.load(best.path, weights_only=True))
    print(f"best {evaluate(model, held_signals, held_states):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--signals", type=int, default=4000)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--width", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=19)
    with tempfile.TemporaryDirectory() as place:
        train(parser.parse_args(), Path(place))
