"""Segmentation of glands with gated axial attention in two branches: the whole picture, and its patches."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

SIZE, GRID = 64, 4
PATCH = SIZE // GRID


def gland_pictures(count, seed):
    g = torch.Generator().manual_seed(seed)
    ys, xs = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    masks = torch.zeros(count, SIZE, SIZE)
    for _ in range(4):
        cy, cx = (torch.randint(8, SIZE - 8, (2, count, 1, 1), generator=g)).unbind(0)
        ry, rx = (torch.randint(4, 12, (2, count, 1, 1), generator=g)).unbind(0)
        masks = torch.maximum(masks, ((((ys - cy) / ry) ** 2 + ((xs - cx) / rx) ** 2) < 1).float())
    stain = torch.tensor([0.7, -0.4, 0.3])[None, :, None, None]
    return masks[:, None] * stain + 0.5 * torch.randn(count, 3, SIZE, SIZE, generator=g), masks.long()


class AxialAttention(nn.Module):
    """Attention along one side of the picture, with gates on the terms of relative position."""

    def __init__(self, chans, length, heads=2, across=False):
        super().__init__()
        self.heads, self.across = heads, across
        self.qkv = nn.Conv2d(chans, 3 * chans, 1, bias=False)
        self.out = nn.Conv2d(chans, chans, 1, bias=False)
        self.norm = nn.GroupNorm(4, chans)
        self.position = nn.Parameter(torch.zeros(heads, length, length))
        self.gate = nn.Parameter(torch.tensor(0.1))

    def forward(self, x):
        if self.across:
            x = x.transpose(2, 3)
        b, c, h, w = x.shape
        q, k, v = self.qkv(x).view(b, 3, self.heads, c // self.heads, h, w).permute(1, 0, 5, 2, 4, 3)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.gate * self.position)
        y = F.relu(self.norm(self.out(y.permute(0, 2, 4, 3, 1).reshape(b, c, h, w)))) + x
        return y.transpose(2, 3) if self.across else y


class AxialBranch(nn.Module):
    def __init__(self, chans, size, blocks):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, chans, 3, 2, 1), nn.GroupNorm(4, chans), nn.ReLU())
        side = size // 2
        self.blocks = nn.Sequential(*(AxialAttention(chans, side, across=bool(i % 2)) for i in range(2 * blocks)))
        self.up = nn.Conv2d(chans, chans, 3, 1, 1)

    def forward(self, x):
        return F.interpolate(F.relu(self.up(self.blocks(self.stem(x)))), scale_factor=2, mode="bilinear")


class TwoBranchNet(nn.Module):
    def __init__(self, chans=16, classes=2):
        super().__init__()
        self.whole = AxialBranch(chans, SIZE, 1)
        self.local = AxialBranch(chans, PATCH, 2)
        self.decoder = nn.Conv2d(chans, chans, 3, 1, 1)
        self.adjust = nn.Conv2d(chans, classes, 1)

    def forward(self, x):
        x_whole = self.whole(x)
        b = len(x)
        patches = x.view(b, 3, GRID, PATCH, GRID, PATCH).permute(0, 2, 4, 1, 3, 5).reshape(-1, 3, PATCH, PATCH)
        y = self.local(patches).view(b, GRID, GRID, -1, PATCH, PATCH)
        x_local = y.permute(0, 3, 1, 4, 2, 5).reshape(b, -1, SIZE, SIZE)
        return self.adjust(F.relu(self.decoder(x_whole + x_local)))


def dice(logits, target):
    found = logits.argmax(1)
    return (2 * (found * target).sum() / (found.sum() + target.sum()).clamp(min=1)).item()


def run(epochs=2, batch_size=4, lr=1e-3):
    torch.manual_seed(0)
    train = DataLoader(TensorDataset(*gland_pictures(260, 1)), batch_size, shuffle=True)
    val_x, val_y = gland_pictures(24, 2)
    model = TwoBranchNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=1e-5)
    for epoch in range(epochs):
        model.train()
        total = 0.0
        for x, y in train:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        model.eval()
        with torch.no_grad():
            print(f"epoch {epoch} loss {total / len(train):.4f} dice {dice(model(val_x), val_y):.3f}")


if __name__ == "__main__":
    run()
