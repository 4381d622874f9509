"""Sort ceramic tiles by pattern with a small vision transformer; pictures stay bytes until their batch is made."""

import torch
import torch.nn.functional as F
from torch import nn

SIDE, PATCH, KINDS = 32, 4, 8


def make_tiles(count, seed):
    """Stripes, checks and rings of several widths in random colours, as bytes."""
    gen = torch.Generator().manual_seed(seed)
    labels = torch.randint(KINDS, (count,), generator=gen)
    y, x = torch.meshgrid(torch.arange(SIDE).float(), torch.arange(SIDE).float(), indexing="ij")
    waves = torch.stack([x, y, x + y, (x - 16).hypot(y - 16)])
    phase = 6.2832 * torch.rand(count, 1, 1, generator=gen)
    pattern = torch.sin(waves[labels % 4] * (0.5 + 0.5 * (labels // 4).view(-1, 1, 1)) + phase)
    colours = torch.rand(count, 3, 1, 1, generator=gen)
    noisy = 128 + 90 * colours * pattern.unsqueeze(1) + 20 * torch.randn(count, 3, SIDE, SIDE, generator=gen)
    return noisy.clamp(0, 255).byte(), labels


def augmented(pictures):
    """Half of the batch mirrored, all of it moved by the same few pixels and scaled to unit range."""
    flip = torch.rand(len(pictures), 1, 1, 1) < 0.5
    pictures = torch.where(flip, pictures.flip(3), pictures)
    shift = torch.randint(-3, 4, (2,)).tolist()
    return pictures.roll(shift, (2, 3)).float().div_(127.5).sub_(1)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm_a, self.norm_b = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm_a(x))
        return x + self.mlp(self.norm_b(x))


class TileTransformer(nn.Module):
    def __init__(self, width=96, depth=3, heads=4):
        super().__init__()
        self.patches = nn.Conv2d(3, width, PATCH, PATCH)
        self.place = nn.Parameter(0.02 * torch.randn((SIDE // PATCH) ** 2, width))
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(depth)])
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, KINDS))

    def forward(self, x):
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.place
        return self.head(self.blocks(tokens).mean(1))


@torch.inference_mode()
def accuracy(model, pictures, labels):
    model.eval()
    parts = zip(pictures.split(256), labels.split(256))
    right = sum((model(p.float().div_(127.5).sub_(1)).argmax(1) == known).sum() for p, known in parts)
    model.train()
    return right.item() / len(labels)


def main(epochs=4, batch_size=32, lr=1e-3):
    torch.manual_seed(0)
    pictures, labels = make_tiles(1536, seed=23)
    held_out = make_tiles(256, seed=24)
    model = TileTransformer()
    weights = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": weights, "weight_decay": 0.05}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=lr, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, epochs * (len(labels) // batch_size))
    for epoch in range(epochs):
        for rows in torch.randperm(len(labels)).split(batch_size):
            loss = F.cross_entropy(model(augmented(pictures[rows])), labels[rows], label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}, accuracy {accuracy(model, *held_out):.3f}")


if __name__ == "__main__":
    main()
