"""Guess which exhibit a visitor stops at next from the exhibits seen so far: a causal transformer."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Config:
    exhibits: int = 3000
    length: int = 32
    dim: int = 96
    heads: int = 4
    layers: int = 2
    visits: int = 6400
    batch_size: int = 64
    epochs: int = 2
    lr: float = 1e-3
    seed: int = 17


def make_visits(config: Config, count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Routes through neighbouring rooms, with a few detours; the last stop is the one to be guessed."""
    generator = torch.Generator().manual_seed(seed)
    start = torch.randint(0, config.exhibits, (count, 1), generator=generator)
    pace = torch.randint(1, 4, (count, 1), generator=generator)
    stops = start + pace * torch.arange(config.length + 1)
    detours = torch.randint(-2, 3, stops.shape, generator=generator)
    detours[:, -1] = 0
    routes = (stops + detours) % config.exhibits
    return routes[:, :-1].contiguous(), routes[:, -1].contiguous()


class CausalAttention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, dim = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, dim // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, dim))


class Block(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(dim)
        self.attention = CausalAttention(dim, heads)
        self.mlp_norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class RouteModel(nn.Module):
    """Scores all exhibits as the next stop of a route."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.exhibits = nn.Embedding(config.exhibits, config.dim)
        self.positions = nn.Parameter(0.02 * torch.randn(config.length, config.dim))
        self.blocks = nn.ModuleList(Block(config.dim, config.heads) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.dim)
        self.head = nn.Linear(config.dim, config.exhibits)

    def forward(self, routes: torch.Tensor) -> torch.Tensor:
        hidden = self.exhibits(routes) + self.positions[: routes.shape[1]]
        for block in self.blocks:
            hidden = block(hidden)
        logits = self.head(self.norm(hidden))
        return logits[:, -1]


class Experiment:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.routes, self.targets = make_visits(config, config.visits, config.seed)
        self.held_routes, self.held_targets = make_visits(config, 256, config.seed + 1)
        self.generator = torch.Generator().manual_seed(config.seed)
        self.model = RouteModel(config)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config.lr, weight_decay=0.01)

    def train_epoch(self) -> float:
        self.model.train()
        total = torch.zeros(())
        batches = torch.randperm(len(self.routes), generator=self.generator).split(self.config.batch_size)
        for rows in batches:
            loss = F.cross_entropy(self.model(self.routes[rows]), self.targets[rows])
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            total += loss.detach()
        return total.item() / len(batches)

    @torch.inference_mode()
    def hit_rate(self, best: int = 10) -> float:
        self.model.eval()
        top = self.model(self.held_routes).topk(best, dim=1).indices
        return (top == self.held_targets[:, None]).any(dim=1).float().mean().item()


def main() -> None:
    config = Config()
    torch.manual_seed(config.seed)
    experiment = Experiment(config)
    for epoch in range(config.epochs):
        loss = experiment.train_epoch()
        print(f"epoch {epoch}: loss {loss:.4f}, hit@10 {experiment.hit_rate():.4f}")


if __name__ == "__main__":
    main()
