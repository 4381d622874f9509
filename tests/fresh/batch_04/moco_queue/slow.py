"""Momentum contrast: two views of a picture against a long queue of keys of earlier batches."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


def encoder(dim):
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, 2, 1, bias=False),
        nn.BatchNorm2d(24),
        nn.ReLU(inplace=True),
        nn.Conv2d(24, 48, 3, 2, 1, bias=False),
        nn.BatchNorm2d(48),
        nn.ReLU(inplace=True),
        nn.Conv2d(48, 96, 3, 2, 1, bias=False),
        nn.BatchNorm2d(96),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(96, dim),
    )


class MoCo(nn.Module):
    def __init__(self, dim=128, queue_size=65536, momentum=0.99, temperature=0.1):
        super().__init__()
        self.momentum, self.temperature, self.queue_size = momentum, temperature, queue_size
        self.encoder_q, self.encoder_k = encoder(dim), encoder(dim)
        self.encoder_k.load_state_dict(self.encoder_q.state_dict())
        self.encoder_k.requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(dim, queue_size), dim=0))
        self.pointer = 0
        self.weights_q = list(self.encoder_q.parameters())
        self.weights_k = list(self.encoder_k.parameters())

    @torch.no_grad()
    def update_key_encoder(self):
        torch._foreach_lerp_(self.weights_k, self.weights_q, 1 - self.momentum)

    @torch.no_grad()
    def dequeue_and_enqueue(self, keys):
        self.queue = torch.cat((keys.T, self.queue), dim=1)[:, : self.queue_size]
        self.pointer = (self.pointer + len(keys)) % self.queue_size

    def forward(self, view_q, view_k):
        q = F.normalize(self.encoder_q(view_q), dim=1)
        with torch.no_grad():
            k = F.normalize(self.encoder_k(view_k), dim=1)
        positive = (q * k).sum(dim=1, keepdim=True)
        negative = q @ self.queue
        logits = torch.cat([positive, negative], dim=1) / self.temperature
        return logits, k


class TwoViews:
    """Random textures; a view is a crop, perhaps mirrored, with other brightness."""

    def __init__(self, count, batch_size, seed):
        self.generator = torch.Generator().manual_seed(seed)
        coarse = torch.randn(count, 3, 10, 10, generator=self.generator)
        self.images = F.interpolate(coarse, size=40, mode="bilinear", align_corners=False)
        self.batch_size = batch_size

    def view(self, images):
        top, left, mirror = torch.randint(0, 8, (3,), generator=self.generator).tolist()
        crop = images[:, :, top : top + 32, left : left + 32]
        gain = 0.6 + 0.8 * torch.rand(len(images), 1, 1, 1, generator=self.generator)
        return gain * (crop.flip(-1) if mirror % 2 else crop)

    def __iter__(self):
        for rows in torch.randperm(len(self.images), generator=self.generator).split(self.batch_size):
            images = self.images[rows]
            yield self.view(images), self.view(images)


def train_one_epoch(epoch, loader, model, optimizer, target):
    total, right, seen = torch.zeros(()), torch.zeros(()), 0
    for view_q, view_k in loader:
        logits, keys = model(view_q, view_k)
        loss = F.cross_entropy(logits, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.update_key_encoder()
        model.dequeue_and_enqueue(keys)
        total += loss.detach() * len(keys)
        right += (logits.detach()[:, 0] >= logits.detach().amax(dim=1)).sum()
        seen += len(keys)
    print(f"epoch {epoch}: loss {total.item() / seen:.4f}, top 1 {right.item() / seen:.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.03)
    parser.add_argument("--moco-dim", type=int, default=128)
    parser.add_argument("--moco-k", type=int, default=65536)
    args = parser.parse_args()
    torch.manual_seed(420)
    loader = TwoViews(1024, args.batch_size, 421)
    model = MoCo(args.moco_dim, args.moco_k)
    optimizer = torch.optim.SGD(model.encoder_q.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4, fused=True)
    target = torch.zeros(args.batch_size, dtype=torch.long)
    for epoch in range(args.epochs):
        train_one_epoch(epoch, loader, model, optimizer, target)


if __name__ == "__main__":
    main()
