"""Where will everybody be? Road users look at each other: a relation network over all pairs of a scene."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Config:
    users: int = 20
    past: int = 8
    ahead: int = 5
    width: int = 64
    scenes: int = 3200
    batch: int = 16
    epochs: int = 1
    lr: float = 2e-3


class Relations(nn.Module):
    """What each user takes from all others: the mean of a network over the pairs."""

    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(2 * width, width)
        self.second = nn.Linear(width, width)

    def forward(self, x):
        of_mine, of_theirs = self.first.weight.chunk(2, dim=1)
        mine, theirs = F.linear(x, of_mine, self.first.bias), F.linear(x, of_theirs)
        hidden = F.relu(mine.unsqueeze(2) + theirs.unsqueeze(1))
        return self.second(hidden.mean(2))


class Forecaster(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.read = nn.Sequential(nn.Flatten(2), nn.Linear(2 * cfg.past, cfg.width), nn.ReLU())
        self.relations = nn.ModuleList([Relations(cfg.width) for _ in range(2)])
        self.norms = nn.ModuleList([nn.LayerNorm(cfg.width) for _ in range(2)])
        self.write = nn.Linear(cfg.width, 2 * cfg.ahead)

    def forward(self, past):
        x = self.read(past)
        for relation, norm in zip(self.relations, self.norms):
            x = x + relation(norm(x))
        return self.write(x).unflatten(-1, (-1, 2))


def scenes(cfg):
    """Users drift towards their common middle and away from their nearest: (scenes, users, past + ahead, 2)."""
    place = 3 * torch.randn(cfg.scenes, cfg.users, 2)
    speed, path = 0.3 * torch.randn_like(place), []
    for _ in range(cfg.past + cfg.ahead):
        speed = 0.95 * speed + 0.02 * (place.mean(1, keepdim=True) - place)
        near = torch.cdist(place, place).add(1e3 * torch.eye(cfg.users)).argmin(2)
        other = place.gather(1, near[..., None].expand_as(place))
        speed = speed + 0.05 * (place - other) / (0.2 + (place - other).square().sum(2, keepdim=True))
        place = place + speed
        path.append(place)
    path = torch.stack(path, 2)
    return path - path[:, :, cfg.past - 1].mean(1)[:, None, None]


def train(cfg):
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    past, ahead = scenes(cfg).to(device).split((cfg.past, cfg.ahead), dim=2)
    ahead = ahead - past[:, :, -1:]
    model = Forecaster(cfg).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, cfg.epochs * cfg.scenes // cfg.batch)
    for epoch in range(cfg.epochs):
        for step, rows in enumerate(torch.randperm(cfg.scenes, device=device).split(cfg.batch), 1):
            with torch.autocast(device, dtype=torch.bfloat16):
                guess = model(past[rows])
            loss = F.smooth_l1_loss(guess.float(), ahead[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            if step % 50 == 0:
                print(f"epoch {epoch}, step {step}: {loss.item():.4f}")


if __name__ == "__main__":
    train(Config())
