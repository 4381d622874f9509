"""Orders in a canteen: two towers, guests and dishes, with the other dishes of the batch as negatives."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Options:
    guests: int = 4000
    dishes: int = 900
    orders: int = 60000
    width: int = 96
    history: int = 20
    batch_size: int = 512
    epochs: int = 4
    lr: float = 2e-3
    temperature: float = 0.07
    seed: int = 14


class Orders:
    """Tensors of guest, past dishes and the dish that was ordered."""

    def __init__(self, options: Options):
        generator = torch.Generator().manual_seed(options.seed)
        taste = torch.randint(30, (options.guests,), generator=generator)
        self.guest = torch.randint(options.guests, (options.orders,), generator=generator)
        group = taste[self.guest]
        offsets = torch.randint(30, (options.orders, options.history + 1), generator=generator)
        dishes = group[:, None] * 30 + offsets
        self.past, self.dish = dishes[:, :-1].contiguous(), dishes[:, -1].contiguous()

    def batches(self, size: int):
        for rows in torch.randperm(len(self.guest)).split(size):
            yield self.guest[rows], self.past[rows], self.dish[rows]


class Tower(nn.Module):
    def __init__(self, inner: int, width: int):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(inner, 4 * width),
            nn.ReLU(),
            nn.LayerNorm(4 * width),
            nn.Linear(4 * width, 2 * width),
            nn.ReLU(),
            nn.Linear(2 * width, width),
        )

    def forward(self, x):
        return F.normalize(self.layers(x), dim=1)


class TwoTowers(nn.Module):
    def __init__(self, options: Options):
        super().__init__()
        self.temperature = options.temperature
        self.guests = nn.Embedding(options.guests, options.width)
        self.dishes = nn.Embedding(options.dishes, options.width)
        self.past = nn.EmbeddingBag(options.dishes, options.width, mode="mean")
        self.guest_tower = Tower(2 * options.width, options.width)
        self.dish_tower = Tower(options.width, options.width)

    def forward(self, guest, past, dish):
        person = self.guest_tower(torch.cat([self.guests(guest), self.past(past)], dim=1))
        meal = self.dish_tower(self.dishes(dish))
        return person @ meal.T / self.temperature


def masked_loss(scores, dish):
    twins = (dish[:, None] == dish[None, :]).fill_diagonal_(False)
    return F.cross_entropy(scores.masked_fill(twins, float("-inf")), torch.arange(len(dish)))


def main() -> None:
    options = Options()
    torch.manual_seed(options.seed)
    orders = Orders(options)
    model = TwoTowers(options)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr, fused=True)
    for epoch in range(options.epochs):
        losses = []
        for guest, past, dish in orders.batches(options.batch_size):
            loss = masked_loss(model(guest, past, dish), dish)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        print(f"epoch {epoch}: loss {torch.stack(losses).mean().item():.4f}")


if __name__ == "__main__":
    main()
