"""A small decoder that learns to write limericks letter by letter."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

LINES = (
    "there was an old tailor of kent",
    "who stitched all his coats with cement",
    "when it rained they grew hard",
    "so he stood in the yard",
    "and asked where the buttons all went",
)


def letters(count: int, seed: int) -> tuple[torch.Tensor, int]:
    """Lines of limericks in any order as numbers of letters."""
    alphabet = sorted({letter for line in LINES for letter in line} | {"\n"})
    number = {letter: place for place, letter in enumerate(alphabet)}
    lines = [torch.tensor([number[letter] for letter in line + "\n"]) for line in LINES]
    order = torch.randint(0, len(lines), (count,), generator=torch.Generator().manual_seed(seed))
    return torch.cat([lines[place] for place in order.tolist()]), len(alphabet)


class DecoderLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.before(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.between(x))


class Limericks(nn.Module):
    def __init__(self, alphabet: int, context: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.letters = nn.Embedding(alphabet, width)
        self.places = nn.Parameter(torch.randn(context, width) * 0.02)
        self.layers = nn.Sequential(*(DecoderLayer(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, alphabet, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.layers(self.letters(x) + self.places[: x.shape[1]])))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--context", type=int, default=96)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--width", type=int, default=128)
    args = parser.parse_args()
    torch.manual_seed(26)
    text, alphabet = letters(3000, seed=26)
    model = Limericks(alphabet, args.context, args.width, layers=3, heads=4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    span = torch.arange(args.context + 1)
    for step in range(args.steps):
        rows = text[torch.randint(0, len(text) - args.context - 1, (args.batch_size, 1)) + span]
        loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 60 == 0:
            print(f"step {step:3d}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
