"""Two towers for shoppers and groceries, trained with negatives from the batch."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class TowerConfig:
    shoppers: int = 8_000
    groceries: int = 3_000
    purchases: int = 120_000
    basket: int = 12
    width: int = 64
    hidden: int = 384
    batch: int = 512
    epochs: int = 1
    lr: float = 2e-3
    temperature: float = 0.1
    seed: int = 77


def make_purchases(cfg):
    gen = torch.Generator().manual_seed(cfg.seed)
    taste = torch.randint(cfg.groceries, (cfg.shoppers,), generator=gen)
    shopper = torch.randint(cfg.shoppers, (cfg.purchases,), generator=gen)
    spread = (torch.randn(cfg.purchases, cfg.basket + 1, generator=gen) * 40).long()
    goods = (taste[shopper].unsqueeze(1) + spread) % cfg.groceries
    return shopper, goods[:, :-1].contiguous(), goods[:, -1].contiguous()


def tower(inputs, hidden, width):
    return nn.Sequential(
        nn.Linear(inputs, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, width),
    )


class TwoTowers(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.temperature = cfg.temperature
        self.shoppers = nn.Embedding(cfg.shoppers, cfg.width)
        self.history = nn.EmbeddingBag(cfg.groceries, cfg.width, mode="mean")
        self.groceries = nn.Embedding(cfg.groceries, cfg.width)
        self.left = tower(2 * cfg.width, cfg.hidden, cfg.width)
        self.right = tower(cfg.width, cfg.hidden, cfg.width)

    def forward(self, shopper, basket, bought):
        person = self.left(torch.cat([self.shoppers(shopper), self.history(basket)], dim=1))
        thing = self.right(self.groceries(bought))
        scores = F.normalize(person, dim=1) @ F.normalize(thing, dim=1).t() / self.temperature
        same = bought.unsqueeze(0) == bought.unsqueeze(1)
        same.fill_diagonal_(False)
        return F.cross_entropy(scores.masked_fill(same, -1e4), torch.arange(len(bought)))


def main():
    cfg = TowerConfig()
    torch.manual_seed(cfg.seed)
    columns = make_purchases(cfg)
    model = TwoTowers(cfg)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr, fused=True)
    seen, total = 0, torch.zeros(())
    for _ in range(cfg.epochs):
        for chosen in torch.randperm(cfg.purchases).split(cfg.batch):
            loss = model(*(column[chosen] for column in columns))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.detach()
            seen += 1
            if seen % 100 == 0:
                print(f"step {seen}: {total.item() / 100:.4f}")
                total.zero_()


if __name__ == "__main__":
    main()
