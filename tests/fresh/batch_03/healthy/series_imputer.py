"""A transformer fills gaps of multivariate series; all windows lie in one tensor."""

import torch
from torch import nn
from torch.nn import functional as F

CHANNELS, LENGTH, DIM, HEADS = 6, 96, 64, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.ff = nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.GELU(), nn.Linear(2 * DIM, DIM))

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(attended.transpose(1, 2).reshape(batch, length, DIM))
        return x + self.ff(self.norm2(x))


class Imputer(nn.Module):
    def __init__(self, blocks=2):
        super().__init__()
        self.stem = nn.Linear(2 * CHANNELS, DIM)
        self.position = nn.Parameter(0.02 * torch.randn(LENGTH, DIM))
        self.blocks = nn.Sequential(*[Block() for _ in range(blocks)])
        self.head = nn.Linear(DIM, CHANNELS)

    def forward(self, x, seen):
        return self.head(self.blocks(self.stem(torch.cat([x * seen, seen], dim=2)) + self.position))


def waves(count):
    t = torch.linspace(0, 12, LENGTH)[:, None]
    frequency, phase = torch.rand(count, 1, CHANNELS) + 0.5, 6.28 * torch.rand(count, 1, CHANNELS)
    series = torch.sin(frequency * t + phase)
    return series + 0.3 * series.roll(1, dims=2) + 0.05 * torch.randn_like(series)


def main():
    torch.manual_seed(1)
    train, test = waves(2048), waves(256)
    hidden = torch.rand(test.shape) < 0.3
    model = Imputer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    for epoch in range(3):
        for rows in torch.randperm(len(train)).split(32):
            x = train[rows]
            seen = (torch.rand(x.shape) > 0.3).float()
            missing = 1 - seen
            loss = ((model(x, seen) - x).square() * missing).sum() / missing.sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.inference_mode():
            error = (model(test, (~hidden).float()) - test)[hidden].square().mean().item()
        model.train()
        print(f"epoch {epoch}: train {loss.item():.4f} test {error:.4f}")


if __name__ == "__main__":
    main()
