"""Tabular classification with a residual MLP; rows lie in tensors and each batch is one index of them."""

import torch
from torch import nn
from torch.nn import functional as F

NUMBERS, KINDS, LEVELS = 24, 6, 30


def applications(count, seed):
    g = torch.Generator().manual_seed(seed)
    numbers = torch.randn(count, NUMBERS, generator=g)
    kinds = torch.randint(0, LEVELS, (count, KINDS), generator=g)
    risk = numbers[:, 0] * numbers[:, 1] + numbers[:, 2] + (kinds[:, 0] % 3 - 1) + 0.3 * torch.randn(count, generator=g)
    return numbers, kinds, (risk > 0).float()


class ResMLP(nn.Module):
    def __init__(self, width=192, depth=4, embedding=8):
        super().__init__()
        self.embed = nn.Embedding(KINDS * LEVELS, embedding)
        self.register_buffer("offsets", torch.arange(KINDS) * LEVELS)
        self.enter = nn.Linear(NUMBERS + KINDS * embedding, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            for _ in range(depth)
        )
        self.leave = nn.Linear(width, 1)

    def forward(self, numbers, kinds):
        x = self.enter(torch.cat([numbers, self.embed(kinds + self.offsets).flatten(1)], dim=1))
        for block in self.blocks:
            x = x + block(x)
        return self.leave(x).squeeze(1)


def main():
    torch.manual_seed(0)
    rows = applications(30_000, 0)
    valid = applications(4_000, 1)
    model = ResMLP()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4, fused=True)
    for epoch in range(3):
        model.train()
        total = torch.zeros(())
        batches = torch.randperm(len(rows[0])).split(512)
        for index in batches:
            numbers, kinds, wanted = (part[index] for part in rows)
            loss = F.binary_cross_entropy_with_logits(model(numbers, kinds), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        model.eval()
        with torch.inference_mode():
            right = ((model(valid[0], valid[1]) > 0) == (valid[2] > 0.5)).float().mean().item()
        print(f"epoch {epoch}: loss {total.item() / len(batches):.4f} accuracy {right:.4f}")


if __name__ == "__main__":
    main()
