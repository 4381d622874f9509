"""Recognises products on shelves: features of a network trained elsewhere, and a head with an angular margin."""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    products: int = 40
    pictures: int = 1280
    side: int = 32
    widths: list = field(default_factory=lambda: [32, 64, 96])
    batch: int = 64
    epochs: int = 4
    scale: float = 16.0
    margin: float = 0.2
    lr: float = 5e-3


class Backbone(nn.Module):
    """Stands for a network whose weights were loaded from a file."""

    def __init__(self, widths):
        super().__init__()
        stages, inner = [], 3
        for width in widths:
            stages += [nn.Conv2d(inner, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
            stages += [nn.Conv2d(width, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
            inner = width
        self.stages, self.width = nn.Sequential(*stages), inner

    def forward(self, x):
        return self.stages(x).mean((2, 3))


class AngularHead(nn.Module):
    def __init__(self, width, cfg):
        super().__init__()
        self.project = nn.Sequential(nn.Linear(width, 128), nn.PReLU(), nn.Linear(128, 64))
        self.centres = nn.Parameter(torch.randn(cfg.products, 64))
        self.scale, self.margin = cfg.scale, cfg.margin

    def forward(self, features, labels):
        cosine = F.normalize(self.project(features.float())) @ F.normalize(self.centres).T
        wanted = F.one_hot(labels, cosine.shape[1])
        return self.scale * (cosine - self.margin * wanted), cosine


class ProductNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.backbone = Backbone(cfg.widths)
        self.head = AngularHead(self.backbone.width, cfg)
        self.backbone.eval().requires_grad_(False)

    def forward(self, pictures, labels):
        with torch.autocast(pictures.device.type, dtype=torch.bfloat16):
            features = self.backbone(pictures)
        logits, cosine = self.head(features, labels)
        return {"loss": F.cross_entropy(logits, labels), "right": (cosine.argmax(1) == labels).float().mean()}


class Augment:
    """Mirrors a batch and changes its brightness."""

    def __call__(self, pictures):
        if torch.rand(()) < 0.5:
            pictures = pictures.flip(3)
        return pictures * (0.8 + 0.4 * torch.rand(len(pictures), 1, 1, 1, device=pictures.device))


class Trainer:
    def __init__(self, cfg, device):
        self.cfg, self.device, self.augment = cfg, device, Augment()
        self.model = ProductNet(cfg).to(device, memory_format=torch.channels_last)
        self.optimizer = torch.optim.AdamW(self.model.head.parameters(), lr=cfg.lr, fused=True)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, cfg.epochs)

    def step(self, pictures, labels):
        out = self.model(self.augment(pictures), labels)
        self.optimizer.zero_grad()
        out["loss"].backward()
        self.optimizer.step()
        return {name: value.detach() for name, value in out.items()}

    def fit(self, pictures, labels):
        for epoch in range(self.cfg.epochs):
            seen = []
            for rows in torch.randperm(len(labels), device=self.device).split(self.cfg.batch):
                seen.append(self.step(pictures[rows], labels[rows]))
            self.schedule.step()
            means = {name: torch.stack([s[name] for s in seen]).mean().item() for name in seen[0]}
            print(f"epoch {epoch}: loss {means['loss']:.3f}, {means['right']:.3f} right")


def main(cfg):
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    labels = torch.randint(0, cfg.products, (cfg.pictures,))
    wrappers = torch.rand(cfg.products, 3, cfg.side, cfg.side)[labels]
    pictures = (wrappers + 0.3 * torch.randn_like(wrappers)).to(device, memory_format=torch.channels_last)
    Trainer(cfg, device).fit(pictures, labels.to(device))


if __name__ == "__main__":
    main(Config())
