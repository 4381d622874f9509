"""Which restaurant orders which truffles: two towers with in-batch negatives and one table for all fields."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass
class Config:
    orders: int = 60_000
    width: int = 32
    hidden: int = 192
    output: int = 64
    batch_size: int = 512
    epochs: int = 8
    lr: float = 2e-3
    temperature: float = 0.1
    log_every: int = 50
    seed: int = 29
    restaurant_fields: tuple[int, ...] = (800, 40, 12, 6)
    truffle_fields: tuple[int, ...] = (400, 30, 9)


def make_orders(config: Config) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Restaurants and truffles are points in a space of tastes, orders are drawn by their closeness."""
    generator = torch.Generator().manual_seed(config.seed)

    def catalogue(sizes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        count = sizes[0]
        columns = [torch.arange(count)]
        columns += [torch.randint(size, (count,), generator=generator) for size in sizes[1:]]
        tastes = torch.randn(count, 8, generator=generator)
        for size, column in zip(sizes[1:], columns[1:], strict=True):
            tastes = tastes + torch.randn(size, 8, generator=generator)[column]
        return torch.stack(columns, dim=1), F.normalize(tastes, dim=1)

    restaurants, wishes = catalogue(config.restaurant_fields)
    truffles, tastes = catalogue(config.truffle_fields)
    odds = torch.softmax(8 * wishes @ tastes.t(), dim=1)
    buyers = torch.randint(len(restaurants), (config.orders,), generator=generator)
    bought = torch.empty_like(buyers)
    for part, rows in zip(bought.split(4096), buyers.split(4096), strict=True):
        part.copy_(torch.multinomial(odds[rows], 1, generator=generator).squeeze(1))
    return restaurants, truffles, buyers, bought


class Tower(nn.Module):
    def __init__(self, fields: tuple[int, ...], config: Config):
        super().__init__()
        offsets = torch.tensor((0, *fields[:-1])).cumsum(0)
        self.register_buffer("offsets", offsets)
        self.table = nn.Embedding(sum(fields), config.width)
        self.layers = nn.Sequential(
            nn.Linear(len(fields) * config.width, config.hidden),
            nn.GELU(),
            nn.Linear(config.hidden, config.hidden),
            nn.GELU(),
            nn.Linear(config.hidden, config.output),
        )

    def forward(self, rows: Tensor) -> Tensor:
        return F.normalize(self.layers(self.table(rows + self.offsets).flatten(1)), dim=1)


class TwoTowers(nn.Module):
    def __init__(self, config: Config, popularity: Tensor):
        super().__init__()
        self.restaurants = Tower(config.restaurant_fields, config)
        self.truffles = Tower(config.truffle_fields, config)
        self.temperature = config.temperature
        self.register_buffer("correction", popularity.log())

    def forward(self, restaurants: Tensor, truffles: Tensor, ids: Tensor) -> Tensor:
        scores = self.restaurants(restaurants) @ self.truffles(truffles).t() / self.temperature
        scores = scores - self.correction[ids]
        twins = (ids.unsqueeze(0) == ids.unsqueeze(1)).fill_diagonal_(False)
        return F.cross_entropy(scores.masked_fill(twins, -torch.inf), torch.arange(len(ids)))

    @torch.inference_mode()
    def hit_rate(self, restaurants: Tensor, truffles: Tensor, buyers: Tensor, bought: Tensor, top: int = 20) -> float:
        self.eval()
        scores = self.restaurants(restaurants) @ self.truffles(truffles).t()
        best = scores.topk(top, dim=1).indices
        return (best[buyers] == bought.unsqueeze(1)).any(1).float().mean().item()


def main() -> None:
    config = Config()
    torch.manual_seed(config.seed)
    restaurants, truffles, buyers, bought = make_orders(config)
    border = int(0.9 * config.orders)
    popularity = torch.bincount(bought[:border], minlength=len(truffles)).clamp(min=1) / border
    model = TwoTowers(config, popularity)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, fused=True)
    batches = border // config.batch_size
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.epochs * batches)
    step, running = 0, torch.zeros(())
    for epoch in range(config.epochs):
        model.train()
        order = torch.randperm(border)[: batches * config.batch_size]
        for chosen in order.split(config.batch_size):
            ids = bought[chosen]
            loss = model(restaurants[buyers[chosen]], truffles[ids], ids)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            running += loss.detach()
            step += 1
            if step % config.log_every == 0:
                print(f"step {step}: loss {running.item() / config.log_every:.3f}")
                running.zero_()
        hits = model.hit_rate(restaurants, truffles, buyers[border:], bought[border:])
        print(f"epoch {epoch}: hit rate {hits:.3f}")


if __name__ == "__main__":
    main()
