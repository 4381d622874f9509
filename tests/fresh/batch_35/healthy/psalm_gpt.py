"""A small GPT over the characters of generated psalms: packed blocks, fused attention, all data in memory."""

import argparse
import math
import random
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

OPENINGS = ("praise", "sing unto", "remember", "wait upon", "hear", "bless")
THINGS = ("the hills", "the morning", "the river", "the keeper of the gate", "the quiet sea", "the seed in the field")
ENDINGS = ("for ever and ever", "in the days of rain", "and be glad", "with harp and drum", "though the night is long")


def write_psalms(verses: int, seed: int) -> str:
    rng = random.Random(seed)
    lines = []
    for number in range(verses):
        line = f"{rng.choice(OPENINGS)} {rng.choice(THINGS)} {rng.choice(ENDINGS)}"
        lines.append(line if rng.random() < 0.7 else f"{line}, yea, {rng.choice(ENDINGS)}")
        if number % 9 == 8:
            lines.append("selah")
    return "\n".join(lines)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class PsalmGPT(nn.Module):
    def __init__(self, characters: int, context: int, width: int, heads: int, layers: int):
        super().__init__()
        self.token = nn.Embedding(characters, width)
        self.position = nn.Parameter(0.02 * torch.randn(context, width))
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, characters, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.norm(self.layers(self.token(ids) + self.position[: ids.shape[1]])))


class Blocks:
    def __init__(self, stream: Tensor, context: int, batch_size: int, seed: int):
        self.windows = stream.unfold(0, context + 1, 1)
        self.batch_size = batch_size
        self.generator = torch.Generator().manual_seed(seed)

    def sample(self) -> tuple[Tensor, Tensor]:
        starts = torch.randint(len(self.windows), (self.batch_size,), generator=self.generator)
        block = self.windows[starts]
        return block[:, :-1], block[:, 1:]


def loss_of(model: PsalmGPT, ids: Tensor, following: Tensor) -> Tensor:
    return F.cross_entropy(model(ids).flatten(0, 1), following.flatten())


def learning_rate(step: int, steps: int, warmup: int) -> float:
    if step < warmup:
        return (step + 1) / warmup
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--verses", type=int, default=6000)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--report-every", type=int, default=40)
    parser.add_argument("--lr", type=float, default=1.5e-3)
    parser.add_argument("--seed", type=int, default=150)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    text = write_psalms(args.verses, args.seed)
    characters = {character: number for number, character in enumerate(sorted(set(text)))}
    stream = torch.tensor([characters[character] for character in text])
    border = int(0.95 * len(stream))
    train = Blocks(stream[:border], args.context, args.batch_size, args.seed)
    held_out = Blocks(stream[border:], args.context, 32, args.seed + 1)
    model = PsalmGPT(len(characters), args.context, args.width, args.heads, args.layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), fused=True)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: learning_rate(step, args.steps, 15))

    total = torch.zeros(())
    for step in range(1, args.steps + 1):
        loss = loss_of(model, *train.sample())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        total += loss.detach()
        if step % args.report_every == 0:
            with torch.inference_mode():
                test = loss_of(model, *held_out.sample())
            print(f"step {step}: loss {total.item() / args.report_every:.4f}, held out {test.item():.4f}")
            total.zero_()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "psalms.pt")
        torch.save(model.state_dict(), path)
        print(f"{path.stat().st_size / 1e6:.1f} MB of weights")


if __name__ == "__main__":
    main()
