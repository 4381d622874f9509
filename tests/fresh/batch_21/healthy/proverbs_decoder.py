"""A small decoder with fused causal attention on proverbs that are packed into rows of equal length."""

import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

VOCABULARY, END = 512, 0


class PackedProverbs(Dataset):
    """One long row of tokens, cut into blocks; a batch of places is read with a single index."""

    def __init__(self, tokens, block, seed):
        generator = torch.Generator().manual_seed(seed)
        words = torch.randint(1, VOCABULARY, (tokens,), generator=generator)
        follows = torch.rand(tokens, generator=generator) < 0.6
        words[1:] = torch.where(follows[1:], (words[:-1] * 31 + 7) % (VOCABULARY - 1) + 1, words[1:])
        words[torch.rand(tokens, generator=generator) < 0.05] = END
        count = (tokens - 1) // block
        self.inputs = words[: count * block].view(count, block)
        self.targets = words[1 : count * block + 1].view(count, block)

    def __len__(self):
        return len(self.inputs)

    def __getitems__(self, places):
        places = torch.tensor(places)
        return self.inputs[places], self.targets[places]


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    def __init__(self, block, width, heads, layers):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.places = nn.Parameter(0.02 * torch.randn(block, width))
        self.layers = nn.Sequential(*[Layer(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, tokens):
        return self.head(self.norm(self.layers(self.tokens(tokens) + self.places[: tokens.shape[1]])))


def loss_of(model, inputs, targets):
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


@torch.inference_mode()
def evaluate(model, loader):
    model.eval()
    losses = torch.stack([loss_of(model, *batch) for batch in loader])
    model.train()
    return losses.mean().item()


def make_optimizer(model, lr, decay):
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), fused=True)


def train(args):
    torch.manual_seed(args.seed)
    data = PackedProverbs(args.tokens, args.block, args.seed)
    held_out = PackedProverbs(20000, args.block, args.seed + 1)
    loader = DataLoader(data, args.batch_size, shuffle=True, drop_last=True, collate_fn=tuple)
    test_loader = DataLoader(held_out, 64, collate_fn=tuple)
    model = Decoder(args.block, args.width, args.heads, args.layers)
    optimizer = make_optimizer(model, args.lr, 0.1)
    steps = args.epochs * len(loader)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda i: min((i + 1) / 20, 0.5 + 0.5 * math.cos(math.pi * i / steps))
    )
    for epoch in range(args.epochs):
        total = torch.zeros(())
        for inputs, targets in loader:
            loss = loss_of(model, inputs, targets)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total += loss.detach()
        print(f"epoch {epoch}  train {total.item() / len(loader):.3f}  test {evaluate(model, test_loader):.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=200_000)
    parser.add_argument("--block", type=int, default=96)
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=14)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
