"""What guests of a teahouse order next: causal attention over their last orders, one sampled negative for each."""

import argparse
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def serve(guests: int, teas: int, length: int, seed: int) -> Tensor:
    """Orders wander from tea to tea of a ring, with leaps and returns; every guest has the same number of them."""
    generator = torch.Generator().manual_seed(seed)
    steps = torch.randint(1, 5, (guests, length), generator=generator)
    leap = torch.rand(guests, length, generator=generator) < 0.1
    far = torch.randint(teas, (guests, length), generator=generator)
    start = torch.randint(teas, (guests, 1), generator=generator)
    return (start + torch.where(leap, far, steps).cumsum(1)) % teas


class Layer(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(inplace=True), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.before(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.between(x))


class OrderModel(nn.Module):
    def __init__(self, teas: int, length: int, width: int, heads: int, layers: int):
        super().__init__()
        self.tea = nn.Embedding(teas, width)
        self.place = nn.Parameter(0.02 * torch.randn(length, width))
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.tea.weight, std=0.05)

    def forward(self, orders: Tensor) -> Tensor:
        return self.norm(self.layers(self.tea(orders) + self.place[: orders.shape[1]]))

    def loss(self, orders: Tensor) -> Tensor:
        states, wanted = self(orders[:, :-1]), orders[:, 1:]
        others = torch.randint(self.tea.num_embeddings, wanted.shape)
        good, bad = self.tea(torch.stack([wanted, others])).mul(states).sum(-1)
        return F.softplus(-good).mean() + F.softplus(bad).mean()


@torch.inference_mode()
def hit_rate(model: OrderModel, orders: Tensor, top: int, batch_size: int) -> float:
    model.eval()
    hits = 0
    for some in orders.split(batch_size):
        scores = model(some[:, :-1])[:, -1] @ model.tea.weight.T
        hits += (scores.topk(top).indices == some[:, -1:]).sum()
    return int(hits) / len(orders)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--guests", type=int, default=4000)
    parser.add_argument("--teas", type=int, default=600)
    parser.add_argument("--length", type=int, default=48)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1211)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    orders = serve(args.guests, args.teas, args.length + 2, args.seed)
    train, test = orders[:, :-1], orders[:1000, 1:]
    model = OrderModel(args.teas, args.length, args.width, args.heads, args.layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01, fused=True)
    total = args.epochs * (args.guests // args.batch_size)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(args.epochs):
            model.train()
            losses = []
            for rows in torch.randperm(args.guests).split(args.batch_size):
                loss = model.loss(train[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                scheduler.step()
                losses.append(loss.detach())
            rate = hit_rate(model, test, 10, 250)
            print(f"epoch {epoch}: loss {torch.stack(losses).mean():.4f}, hit rate {rate:.3f}")
        torch.save(model.state_dict(), Path(folder, "orders.pt"))


if __name__ == "__main__":
    main()
