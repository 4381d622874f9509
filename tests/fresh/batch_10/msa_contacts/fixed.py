"""Contacts of residues from aligned sequences: axial attention over rows and columns of the alignment."""

import torch
import torch.nn.functional as F
from torch import nn

CONFIG = {
    "data": {"proteins": 64, "rows": 48, "columns": 40, "letters": 21, "seed": 14},
    "model": {"width": 64, "heads": 4, "blocks": 2, "chunk_size": None},
    "train": {"batch": 2, "epochs": 3, "lr": 1e-3, "clip": 1.0},
}


def alignments(proteins, rows, columns, letters, seed):
    """Pairs of columns that touch change together from row to row."""
    g = torch.Generator().manual_seed(seed)
    msa = torch.randint(letters, (proteins, rows, columns), generator=g)
    touch = torch.zeros(proteins, columns, columns)
    for protein in range(proteins):
        pairs = torch.randperm(columns, generator=g)[:16].view(8, 2)
        for a, b in pairs.tolist():
            msa[protein, :, b] = (msa[protein, :, a] * 5 + 3) % letters
            touch[protein, a, b] = touch[protein, b, a] = 1
    return msa, touch


def chunked(function, x, size):
    """Applies a function to a few rows at a time, so that less memory is needed at once."""
    if size is None:
        return function(x)
    return torch.cat([function(part) for part in x.split(size, 1)], 1)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1)).movedim(-3, 0).transpose(-2, -3)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(-2, -3).flatten(-2))


class AxialBlock(nn.Module):
    def __init__(self, width, heads, chunk_size):
        super().__init__()
        self.row, self.column = Attention(width, heads), Attention(width, heads)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.chunk_size = chunk_size

    def forward(self, x):
        x = x + chunked(self.row, x, self.chunk_size)
        x = x + chunked(self.column, x.transpose(1, 2), self.chunk_size).transpose(1, 2)
        return x + chunked(self.mlp, x, self.chunk_size)


class ContactModel(nn.Module):
    def __init__(self, data, model):
        super().__init__()
        width = model["width"]
        self.letter = nn.Embedding(data["letters"], width)
        self.place = nn.Parameter(0.02 * torch.randn(data["columns"], width))
        self.blocks = nn.Sequential(
            *(AxialBlock(width, model["heads"], model["chunk_size"]) for _ in range(model["blocks"]))
        )
        self.left, self.right = nn.Linear(width, 16), nn.Linear(width, 16)
        self.bias = nn.Parameter(torch.tensor(-2.0))

    def forward(self, msa):
        x = self.blocks(self.letter(msa) + self.place)
        left, right = self.left(x), self.right(x)
        score = torch.einsum("brid,brjd->bij", left, right) / left.shape[1]
        return score + score.transpose(1, 2) + self.bias


def run(config):
    torch.manual_seed(0)
    msa, touch = alignments(**config["data"])
    model = ContactModel(config["data"], config["model"])
    settings = config["train"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings["lr"])
    weight = torch.tensor(8.0)
    for epoch in range(settings["epochs"]):
        total = torch.zeros(())
        for index in torch.randperm(len(msa)).split(settings["batch"]):
            loss = F.binary_cross_entropy_with_logits(model(msa[index]), touch[index], pos_weight=weight)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), settings["clip"])
            optimizer.step()
            total += loss.detach() * len(index)
        print(f"epoch {epoch}: loss {total.item() / len(msa):.4f}")


if __name__ == "__main__":
    run(CONFIG)
