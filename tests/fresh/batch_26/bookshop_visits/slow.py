"""What do visitors of a bookshop look at next? A bidirectional transformer over visits, masked as BERT4Rec does."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

PAD = 0
IGNORED = -100


def draw_visits(visitors: int, length: int, books: int, seed: int) -> torch.Tensor:
    """Visits that wander through neighbouring shelves; short ones are padded in front."""
    generator = torch.Generator().manual_seed(seed)
    start = torch.randint(1, books + 1, (visitors, 1), generator=generator)
    moves = torch.randint(-4, 9, (visitors, length), generator=generator).cumsum(dim=1)
    visits = (start + moves - 1) % books + 1
    sizes = torch.randint(length // 3, length + 1, (visitors, 1), generator=generator)
    return visits.masked_fill(torch.arange(length) < length - sizes, PAD)


def mask_visits(visits: torch.Tensor, share: float, mask_token: int) -> tuple[torch.Tensor, torch.Tensor]:
    hidden = (torch.rand(visits.shape) < share) & (visits != PAD)
    hidden[:, -1] |= ~hidden.any(dim=1)
    return visits.masked_fill(hidden, mask_token), visits.masked_fill(~hidden, IGNORED)


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        split = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=keep)
        x = x + self.dropout(self.out(mixed.transpose(1, 2).reshape(batch, length, width)))
        return x + self.dropout(self.mlp(self.norm2(x)))


class VisitModel(nn.Module):
    def __init__(self, books: int, length: int, width: int = 64, layers: int = 2, heads: int = 2) -> None:
        super().__init__()
        self.items = nn.Embedding(books + 2, width, padding_idx=PAD)
        self.positions = nn.Parameter(torch.randn(length, width) * 0.02)
        self.layers = nn.ModuleList(Layer(width, heads, dropout=0.1) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, books + 1))

    def encode(self, items: torch.Tensor) -> torch.Tensor:
        x = self.items(items) + self.positions
        keep = (items != PAD)[:, None, None, :]
        for layer in self.layers:
            x = layer(x, keep)
        return x

    def forward(self, items: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        scores = self.head(self.encode(items))
        return F.cross_entropy(scores.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


@torch.no_grad()
def hit_rate(model: VisitModel, visits: torch.Tensor, mask_token: int, top: int = 10) -> float:
    model.eval()
    asked = visits.clone()
    asked[:, -1] = mask_token
    scores = model.head(model.encode(asked)[:, -1])
    model.train()
    return (scores.topk(top).indices == visits[:, -1:]).any(dim=1).float().mean().item()


def main(
    visitors: int = 2600, length: int = 40, books: int = 2000, batch_size: int = 24, epochs: int = 3, share: float = 0.2
) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--weight-decay", type=float, default=0.01)
    args = parser.parse_args()
    torch.manual_seed(8)
    visits = draw_visits(visitors, length, books, seed=8)
    training, held_out = visits[:-200], visits[-200:]
    model = VisitModel(books, length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=args.weight_decay)
    for epoch in range(epochs):
        losses = []
        for rows in torch.randperm(len(training)).split(batch_size):
            masked, targets = mask_visits(training[rows], share, mask_token=books + 1)
            loss = model(masked, targets)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            losses.append(loss.detach())
        hits = hit_rate(model, held_out, mask_token=books + 1)
        print(f"epoch {epoch}: loss {torch.stack(losses).mean():.3f}, hit rate {hits:.3f}")


if __name__ == "__main__":
    main()
