"""Small decoder on generated verse, its matrices trained with an orthogonalised momentum, the rest with AdamW."""

import argparse
import logging
import math
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

logger = logging.getLogger("sonnets")

WORDS = "thee thou summer rose time fair love eye night day sweet shade death life eternal winds buds lease".split()


def polynomial(grad: torch.Tensor, rounds: int) -> torch.Tensor:
    """Newton-Schulz: pushes the singular values of a matrix towards one."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = grad / (grad.norm() + 1e-7)
    tall = x.size(0) > x.size(1)
    x = x.t() if tall else x
    for _ in range(rounds):
        gram = x @ x.t()
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.t() if tall else x


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95, weight_decay=0.01, rounds=3):
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay, rounds=rounds))

    @torch.no_grad()
    def step(self, closure=None):
        loss = None if closure is None else closure()
        for group in self.param_groups:
            for index, p in enumerate(group["params"]):
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["momentum"] = torch.zeros_like(p)
                buffer = state["momentum"]
                buffer.lerp_(p.grad, 1 - group["momentum"])
                update = polynomial(p.grad.lerp(buffer, group["momentum"]), group["rounds"])
                scale = max(1, p.size(0) / p.size(1)) ** 0.5
                logger.debug(f"matrix {index}: momentum {buffer}, update {update}")
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(update, alpha=-group["lr"] * scale)
        return loss


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim, bias=False)
        self.up = nn.Linear(dim, 4 * dim, bias=False)
        self.down = nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x):
        batch, length, dim = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(batch, length, dim))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Poet(nn.Module):
    def __init__(self, vocab, dim, layers, heads, length):
        super().__init__()
        self.token = nn.Embedding(vocab, dim)
        self.place = nn.Embedding(length, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens):
        x = self.token(tokens) + self.place.weight[: tokens.size(1)]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def verse(lines, seed):
    generator = torch.Generator().manual_seed(seed)
    picks = torch.randint(0, len(WORDS), (lines, 6), generator=generator).tolist()
    return "\n".join(" ".join(WORDS[i] for i in line) for line in picks)


def encode(text):
    letters = sorted(set(" \n" + "".join(WORDS)))
    table = {letter: i for i, letter in enumerate(letters)}
    return torch.tensor([table[c] for c in text]), len(letters)


def get_batch(data, batch, length):
    starts = torch.randint(len(data) - length - 1, (batch,))
    window = data[starts[:, None] + torch.arange(length + 1)]
    return window[:, :-1], window[:, 1:]


def loss_of(model, x, y):
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


@torch.no_grad()
def estimate(model, data, args, rounds=5):
    model.eval()
    losses = [loss_of(model, *get_batch(data, args.batch, args.length)) for _ in range(rounds)]
    model.train()
    return torch.stack(losses).mean().item()


def build_optimizers(model, lr):
    matrices = [p for block in model.blocks for p in block.parameters() if p.ndim == 2]
    chosen = set(map(id, matrices))
    rest = [p for p in model.parameters() if id(p) not in chosen]
    return Muon(matrices, lr=lr), torch.optim.AdamW(rest, lr=lr / 5, betas=(0.9, 0.95), weight_decay=0.0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=96)
    parser.add_argument("--dim", type=int, default=96)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--log-level", default="INFO")
    args = parser.parse_args()
    logging.basicConfig(level=args.log_level, format="%(levelname)s %(message)s")
    torch.manual_seed(1)

    data, vocab = encode(verse(4_000, seed=5))
    cut = int(0.9 * len(data))
    model = Poet(vocab, args.dim, args.layers, heads=4, length=args.length)
    optimizers = build_optimizers(model, args.lr)
    warm = [torch.optim.lr_scheduler.LambdaLR(o, lambda step: min(1.0, (step + 1) / 20)) for o in optimizers]
    best = math.inf
    with tempfile.TemporaryDirectory() as folder:
        for step in range(args.steps):
            loss = loss_of(model, *get_batch(data[:cut], args.batch, args.length))
            loss.backward()
            for optimizer, schedule in zip(optimizers, warm):
                optimizer.step()
                schedule.step()
                optimizer.zero_grad(set_to_none=True)
            if (step + 1) % 50 == 0:
                valid = estimate(model, data[cut:], args)
                logger.info("step %d: train %.3f, valid %.3f", step + 1, loss.item(), valid)
                if valid < best:
                    best = valid
                    torch.save(model.state_dict(), os.path.join(folder, "poet.pt"))


if __name__ == "__main__":
    main()
