"""Vision transformer on generated textures, with a small config tree."""

import tempfile
from types import SimpleNamespace

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

CONFIG = SimpleNamespace(
    data=SimpleNamespace(image=32, patch=4, classes=8, train=1280, batch=16),
    model=SimpleNamespace(dim=96, depth=4, heads=4, drop=0.0, use_checkpoint=False),
    train=SimpleNamespace(epochs=2, lr=5e-4, clip=5.0, print_freq=20),
)


class Textures(torch.utils.data.Dataset):
    """Gratings; the class is their direction."""

    def __init__(self, cfg, seed):
        self.cfg, self.seed = cfg, seed

    def __len__(self):
        return self.cfg.train

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed * 100_003 + i)
        label = i % self.cfg.classes
        angle = torch.tensor(label * torch.pi / self.cfg.classes)
        axis = torch.arange(self.cfg.image)
        phase = torch.rand(1, generator=g) * 6.3
        wave = torch.sin(0.8 * (axis[:, None] * angle.cos() + axis[None] * angle.sin()) + phase)
        return wave[None] + 0.5 * torch.randn(3, self.cfg.image, self.cfg.image, generator=g), label


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(dim, dim * 3), nn.Linear(dim, dim)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        x = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.proj(x.transpose(1, 2).reshape(b, n, c))


class Block(nn.Module):
    def __init__(self, dim, heads, drop):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(dim), Attention(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, dim * 4), nn.GELU(), nn.Dropout(drop), nn.Linear(dim * 4, dim))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    def __init__(self, data, model):
        super().__init__()
        self.use_checkpoint = model.use_checkpoint
        self.patch = nn.Conv2d(3, model.dim, data.patch, data.patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, model.dim))
        self.pos = nn.Parameter(torch.randn(1, (data.image // data.patch) ** 2 + 1, model.dim) * 0.02)
        self.blocks = nn.ModuleList(Block(model.dim, model.heads, model.drop) for _ in range(model.depth))
        self.norm, self.head = nn.LayerNorm(model.dim), nn.Linear(model.dim, data.classes)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.use_checkpoint and self.training else block(x)
        return self.head(self.norm(x)[:, 0])


class AverageMeter:
    def __init__(self):
        self.sum = self.count = 0

    def update(self, value, n):
        self.sum, self.count = self.sum + value * n, self.count + n

    @property
    def avg(self):
        return self.sum / max(1, self.count)


def train_one_epoch(cfg, model, loader, optimizer, epoch):
    model.train()
    meter = AverageMeter()
    for idx, (images, labels) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(images), labels, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), cfg.train.clip)
        optimizer.step()
        meter.update(loss.item(), len(images))
        if idx % cfg.train.print_freq == 0:
            print(f"Train: [{epoch}/{cfg.train.epochs}][{idx}/{len(loader)}] loss {meter.avg:.4f}")


def main(cfg):
    torch.manual_seed(0)
    loader = torch.utils.data.DataLoader(Textures(cfg.data, 0), cfg.data.batch, shuffle=True)
    model = VisionTransformer(cfg.data, cfg.model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.train.lr, weight_decay=0.05)
    with tempfile.TemporaryDirectory() as output:
        for epoch in range(cfg.train.epochs):
            train_one_epoch(cfg, model, loader, optimizer, epoch)
            torch.save({"model": model.state_dict(), "epoch": epoch}, f"{output}/ckpt_epoch_{epoch}.pth")


if __name__ == "__main__":
    main(CONFIG)
