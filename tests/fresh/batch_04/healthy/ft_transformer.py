"""A transformer over the columns of a table: every feature becomes a token, all of them in one operation."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class FeatureTokenizer(nn.Module):
    def __init__(self, numeric, cardinalities, dim):
        super().__init__()
        self.weight = nn.Parameter(0.1 * torch.randn(numeric, dim))
        self.bias = nn.Parameter(0.1 * torch.randn(numeric + len(cardinalities), dim))
        self.cls = nn.Parameter(0.1 * torch.randn(1, 1, dim))
        self.table = nn.Embedding(sum(cardinalities), dim)
        starts = torch.tensor([0, *cardinalities[:-1]]).cumsum(0)
        self.register_buffer("starts", starts)

    def forward(self, numbers, categories):
        tokens = torch.cat([numbers.unsqueeze(-1) * self.weight, self.table(categories + self.starts)], dim=1)
        return torch.cat([self.cls.expand(len(numbers), -1, -1), tokens + self.bias], dim=1)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        n, tokens, dim = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, tokens, dim))
        return x + self.down(F.glu(self.up(self.norm2(x)), dim=-1))


class FTTransformer(nn.Module):
    def __init__(self, numeric, cardinalities, dim=64, heads=4, layers=3):
        super().__init__()
        self.tokenizer = FeatureTokenizer(numeric, cardinalities, dim)
        self.blocks = nn.Sequential(*(Block(dim, heads) for _ in range(layers)))
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.ReLU(), nn.Linear(dim, 1))

    def forward(self, numbers, categories):
        return self.head(self.blocks(self.tokenizer(numbers, categories))[:, 0]).squeeze(-1)


class Table:
    def __init__(self, rows, numeric, cardinalities, seed):
        generator = torch.Generator().manual_seed(seed)
        self.numbers = torch.randn(rows, numeric, generator=generator)
        columns = [torch.randint(0, size, (rows,), generator=generator) for size in cardinalities]
        self.categories = torch.stack(columns, dim=1)
        effect = (self.categories % 3 - 1).float().mean(dim=1)
        self.target = self.numbers[:, 0] * self.numbers[:, 1] + effect * self.numbers[:, 2]

    def batches(self, size, shuffle):
        order = torch.randperm(len(self.target)) if shuffle else torch.arange(len(self.target))
        for rows in order.split(size):
            yield self.numbers[rows], self.categories[rows], self.target[rows]


@torch.inference_mode()
def rmse(model, table, size):
    model.eval()
    errors = [F.mse_loss(model(n, c), t, reduction="sum") for n, c, t in table.batches(size, shuffle=False)]
    model.train()
    return (torch.stack(errors).sum() / len(table.target)).sqrt().item()


def train(args):
    torch.manual_seed(550)
    cardinalities = [4, 7, 12, 30, 50, 3]
    data = Table(args.rows, 12, cardinalities, 551)
    valid = Table(2048, 12, cardinalities, 552)
    model = FTTransformer(12, cardinalities)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-5, fused=True)
    for epoch in range(args.epochs):
        losses = []
        for numbers, categories, target in data.batches(args.batch_size, shuffle=True):
            loss = F.mse_loss(model(numbers, categories), target)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        print(f"epoch {epoch}: loss {torch.stack(losses).mean().item():.4f}, RMSE {rmse(model, valid, 512):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    train(parser.parse_args())
