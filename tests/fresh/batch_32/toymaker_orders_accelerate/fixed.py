"""Recommends wooden toys to shops from their past orders: two towers and sampled negatives, with accelerate."""

import argparse

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset


class OrderLog(Dataset):
    """What a shop ordered before (ten toys), and what it orders next."""

    def __init__(self, orders: int, shops: int, toys: int, seed: int):
        generator = torch.Generator().manual_seed(seed)
        taste = torch.randint(0, 20, (shops,), generator=generator)
        self.shop = torch.randint(0, shops, (orders,), generator=generator)
        base = taste[self.shop] * (toys // 20)
        self.past = (base[:, None] + torch.randint(0, toys // 10, (orders, 10), generator=generator)) % toys
        self.next = (base + torch.randint(0, toys // 20, (orders,), generator=generator)) % toys

    def __len__(self):
        return len(self.shop)

    def __getitems__(self, indices):
        rows = torch.tensor(indices)
        return self.shop[rows], self.past[rows], self.next[rows]


class ShopTower(nn.Module):
    def __init__(self, shops: int, toys: int, width: int):
        super().__init__()
        self.shop = nn.Embedding(shops, width)
        self.past = nn.EmbeddingBag(toys, width, mode="mean")
        self.mix = nn.Sequential(nn.Linear(2 * width, 256), nn.ReLU(), nn.Linear(256, width))

    def forward(self, shop, past):
        return self.mix(torch.cat([self.shop(shop), self.past(past)], dim=1))


class ToyTower(nn.Module):
    def __init__(self, toys: int, width: int):
        super().__init__()
        self.toy = nn.Embedding(toys, width)
        self.bias = nn.Embedding(toys, 1)
        nn.init.zeros_(self.bias.weight)

    def forward(self, toys):
        return self.toy(toys), self.bias(toys).squeeze(-1)


class Recommender(nn.Module):
    def __init__(self, shops: int, toys: int, width: int):
        super().__init__()
        self.shop_tower = ShopTower(shops, toys, width)
        self.toy_tower = ToyTower(toys, width)

    def score(self, query, toys):
        vectors, bias = self.toy_tower(toys)
        return (query * vectors).sum(dim=-1) + bias

    def forward(self, shop, past, positive, negatives):
        query = self.shop_tower(shop, past)
        wanted = self.score(query, positive)
        others = self.score(query[:, None], negatives)
        return -F.logsigmoid(wanted[:, None] - others).mean()


class NegativeSampler:
    """Toys are drawn as often as they were ordered, to the power of 3/4."""

    def __init__(self, log: OrderLog, toys: int, count: int):
        self.weights = torch.bincount(log.next, minlength=toys).float().pow(0.75)
        self.count = count

    def __call__(self, rows: int):
        return torch.multinomial(self.weights, rows * self.count, replacement=True).view(rows, self.count)


def train(args):
    accelerator = Accelerator(cpu=True)
    set_seed(args.seed)
    log = OrderLog(args.orders, args.shops, args.toys, args.seed)
    sampler = NegativeSampler(log, args.toys, args.negatives)
    loader = DataLoader(log, batch_size=args.batch_size, shuffle=True, drop_last=True, collate_fn=lambda rows: rows)
    model = Recommender(args.shops, args.toys, args.width)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=args.lr)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(args.epochs):
        total = torch.zeros(())
        for shop, past, positive in loader:
            loss = model(shop, past, positive, sampler(len(shop)))
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            total += loss.detach()
        accelerator.print(f"epoch {epoch}: loss {total.item() / len(loader):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=36000)
    parser.add_argument("--shops", type=int, default=3000)
    parser.add_argument("--toys", type=int, default=4000)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--negatives", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=31)
    train(parser.parse_args())
