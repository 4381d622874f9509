"""What else goes into a basket of yarn: two towers trained against sampled negatives of the catalogue."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    skeins: int = 24_000
    baskets: int = 9_000
    styles: int = 60
    basket_size: int = 6
    negatives: int = 24
    power: float = 0.75
    dim: int = 32
    hidden: int = 256
    batch_size: int = 96
    epochs: int = 4
    lr: float = 2e-3
    seed: int = 230


def fill_baskets(config: Config) -> np.ndarray:
    """Each basket has a style of knitting and takes most of its skeins from those that suit the style."""
    rng = np.random.default_rng(config.seed)
    popularity = 1.0 / np.arange(1, config.skeins + 1) ** 0.8
    order = rng.permutation(config.skeins)
    popularity = popularity[np.argsort(order)]
    style_of = rng.integers(config.styles, size=config.skeins)
    baskets = np.empty((config.baskets, config.basket_size), dtype=np.int64)
    styles = rng.integers(config.styles, size=config.baskets)
    for style in range(config.styles):
        members = np.flatnonzero(style_of == style)
        rows = np.flatnonzero(styles == style)
        weights = popularity[members] / popularity[members].sum()
        baskets[rows] = rng.choice(members, (len(rows), config.basket_size), p=weights)
    stray = rng.random(baskets.shape) < 0.15
    baskets[stray] = rng.integers(config.skeins, size=stray.sum())
    return baskets


class BasketSamples(Dataset):
    """The other skeins of a basket, the one left out, and negatives drawn by smoothed popularity."""

    def __init__(self, baskets: np.ndarray, skeins: int, negatives: int, power: float, seed: int):
        self.baskets = baskets
        self.negatives = negatives
        counts = np.bincount(baskets.ravel(), minlength=skeins) + 1.0
        cumulative = (counts**power / (counts**power).sum()).cumsum()
        self.cumulative = cumulative / cumulative[-1]
        self.rng = np.random.default_rng(seed)

    def __len__(self) -> int:
        return len(self.baskets)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        basket = self.baskets[index]
        place = self.rng.integers(len(basket))
        context = np.delete(basket, place)
        negatives = self.cumulative.searchsorted(self.rng.random(self.negatives), side="right")
        candidates = np.concatenate([basket[place : place + 1], negatives])
        return context, candidates


class TwoTowers(nn.Module):
    def __init__(self, skeins: int, dim: int, hidden: int):
        super().__init__()
        self.skeins = nn.Embedding(skeins, dim)
        self.basket_tower = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, dim))
        self.skein_tower = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, dim))
        nn.init.normal_(self.skeins.weight, std=0.1)

    def encode_skeins(self, ids: torch.Tensor) -> torch.Tensor:
        return F.normalize(self.skein_tower(self.skeins(ids)), dim=-1)

    def encode_baskets(self, context: torch.Tensor) -> torch.Tensor:
        return F.normalize(self.basket_tower(self.skeins(context).mean(1)), dim=-1)

    def forward(self, context: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        baskets = self.encode_baskets(context).unsqueeze(2)
        return 12 * (self.encode_skeins(candidates) @ baskets).squeeze(2)


@torch.no_grad()
def recall(model: TwoTowers, baskets: torch.Tensor, top: int = 100) -> float:
    model.eval()
    catalogue = model.encode_skeins(torch.arange(model.skeins.num_embeddings))
    scores = model.encode_baskets(baskets[:, 1:]) @ catalogue.t()
    best = scores.topk(top, dim=1).indices
    return (best == baskets[:, :1]).any(1).float().mean().item()


def train_epoch(model: TwoTowers, loader: DataLoader, optimizer: torch.optim.Optimizer) -> float:
    model.train()
    total = torch.zeros(())
    for context, candidates in loader:
        scores = model(context, candidates)
        loss = F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total.item() / len(loader)


def main() -> None:
    config = Config()
    torch.manual_seed(config.seed)
    baskets = fill_baskets(config)
    border = int(0.92 * len(baskets))
    samples = BasketSamples(baskets[:border], config.skeins, config.negatives, config.power, config.seed + 1)
    loader = DataLoader(samples, batch_size=config.batch_size, shuffle=True, drop_last=True)
    held_out = torch.from_numpy(baskets[border:])

    model = TwoTowers(config.skeins, config.dim, config.hidden)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr)
    for epoch in range(config.epochs):
        loss = train_epoch(model, loader, optimizer)
        print(f"epoch {epoch}: loss {loss:.4f}, recall at 100 {recall(model, held_out):.4f}")


if __name__ == "__main__":
    main()
