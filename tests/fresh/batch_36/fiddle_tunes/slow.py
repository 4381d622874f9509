"""Continues fiddle tunes note by note: a causal transformer whose attention knows how far apart two notes are."""

import argparse
import math
import tempfile
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

NOTES = 30


def compose(count, length, seed):
    """Tunes of two phrases that come back, moved up or down, with a few ornaments."""
    generator = torch.Generator().manual_seed(seed)
    bar = 8
    phrases = torch.randint(-3, 4, (count, 2, bar), generator=generator).cumsum(-1)
    order = torch.tensor([0, 0, 1, 0]).repeat(math.ceil(length / (4 * bar)))
    tune = phrases[:, order]
    shift = torch.randint(-2, 3, (count, len(order), 1), generator=generator)
    tune = (tune + shift).flatten(1)[:, : length + 1] + NOTES // 2
    ornament = torch.rand(tune.shape, generator=generator) < 0.05
    return (tune + ornament.long()).clamp(0, NOTES - 1)


class RelativeAttention(nn.Module):
    def __init__(self, width, heads, reach):
        super().__init__()
        self.heads, self.reach = heads, reach
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.distance = nn.Embedding(reach + 1, width // heads)
        nn.init.normal_(self.distance.weight, std=0.05)

    def forward(self, x, mask):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        steps = torch.arange(length, device=x.device)
        back = (steps.unsqueeze(1) - steps).clamp(0, self.reach)
        relative = torch.einsum("bhid,ijd->bhij", q, self.distance(back))
        scores = (q @ k.transpose(-2, -1) + relative) / math.sqrt(q.shape[-1])
        weights = scores.masked_fill(mask, float("-inf")).softmax(dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width, heads, reach):
        super().__init__()
        self.before = nn.LayerNorm(width)
        self.attention = RelativeAttention(width, heads, reach)
        self.between = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x, mask):
        x = x + self.attention(self.before(x), mask)
        return x + self.mlp(self.between(x))


class TuneModel(nn.Module):
    def __init__(self, width, heads, layers, reach):
        super().__init__()
        self.note = nn.Embedding(NOTES, width)
        self.layers = nn.ModuleList([Layer(width, heads, reach) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, NOTES)

    def forward(self, notes):
        length = notes.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool, device=notes.device).triu(1)
        x = self.note(notes)
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(self.norm(x))


def step_loss(model, tunes):
    return F.cross_entropy(model(tunes[:, :-1]).flatten(0, 1), tunes[:, 1:].flatten())


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    losses = [step_loss(model, tunes) for (tunes,) in loader]
    model.train()
    return torch.stack(losses).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tunes", type=int, default=1600)
    parser.add_argument("--length", type=int, default=192)
    parser.add_argument("--reach", type=int, default=144)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--eval-every", type=int, default=120)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1792)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    tunes = compose(args.tunes, args.length, args.seed)
    border = int(0.95 * args.tunes)
    train_loader = DataLoader(TensorDataset(tunes[:border]), args.batch_size, shuffle=True, drop_last=True)
    valid_loader = DataLoader(TensorDataset(tunes[border:]), 20)
    model = TuneModel(args.width, args.heads, args.layers, args.reach)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.98))
    warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 30))

    with tempfile.TemporaryDirectory() as folder:
        step, losses, batches = 0, [], iter(train_loader)
        while step < args.steps:
            batch = next(batches, None)
            if batch is None:
                batches = iter(train_loader)
                continue
            loss = step_loss(model, batch[0])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            warm_up.step()
            losses.append(loss.detach())
            step += 1
            if step % args.eval_every == 0:
                valid = evaluate(model, valid_loader)
                print(f"step {step}: loss {torch.stack(losses).mean():.4f}, held out {valid:.4f}")
                torch.save({"step": step, "model": model.state_dict()}, Path(folder, "latest.pt"))
                losses.clear()


if __name__ == "__main__":
    main()
