"""Fine-tuning a vision transformer with learning rates that fall from layer to layer, and an eye on its norms."""

import argparse
import math

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, c))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.gamma1, self.gamma2 = nn.Parameter(0.1 * torch.ones(dim)), nn.Parameter(0.1 * torch.ones(dim))

    def forward(self, x):
        x = x + self.gamma1 * self.attn(self.norm1(x))
        return x + self.gamma2 * self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    def __init__(self, size=32, patch=8, dim=48, depth=12, heads=4, classes=12):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, dim, patch, patch)
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2, dim))
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, classes)

    def forward(self, images):
        x = self.patch_embed(images).flatten(2).transpose(1, 2) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x.mean(dim=1)))


def layer_id(name, depth):
    """0 for the embeddings, 1 to depth for the blocks, depth + 1 for the rest."""
    if name.startswith(("patch_embed", "pos_embed")):
        return 0
    if name.startswith("blocks."):
        return int(name.split(".")[1]) + 1
    return depth + 1


def param_groups_lrd(model, lr, weight_decay, layer_decay):
    depth = len(model.blocks)
    groups = {}
    for name, param in model.named_parameters():
        if not param.requires_grad:
            continue
        decay = 0.0 if param.ndim == 1 or name == "pos_embed" else weight_decay
        scale = layer_decay ** (depth + 1 - layer_id(name, depth))
        group = groups.setdefault((scale, decay), {"params": [], "lr": lr * scale, "weight_decay": decay})
        group["params"].append(param)
    return list(groups.values())


def warmup_cosine(step, warmup, total):
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))


def gradient_norm(module):
    norms = torch._foreach_norm([param.grad for param in module.parameters() if param.grad is not None])
    return torch.linalg.vector_norm(torch.stack(norms))


def parameter_norm(module):
    norms = torch._foreach_norm(list(module.parameters()))
    return torch.linalg.vector_norm(torch.stack(norms))


class Monitor:
    """Keeps what was logged at each step; reports the mean of the last ones."""

    def __init__(self):
        self.rows = []

    @torch.no_grad()
    def log_model_state(self, model):
        row = {"grad": gradient_norm(model), "param": parameter_norm(model)}
        parts = {"blocks": model.blocks, "head": model.head}
        for name, part in (*parts.items(), *model.blocks.named_children()):
            row[f"grad_{name}"], row[f"param_{name}"] = gradient_norm(part), parameter_norm(part)
        self.rows.append(row)

    def report(self, last):
        rows = self.rows[-last:]
        means = {name: torch.stack([row[name] for row in rows]).mean().item() for name in rows[0]}
        return " ".join(f"{name} {value:.2f}" for name, value in means.items())


def make_images(count, classes, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (count,), generator=generator)
    coarse = torch.rand(classes, 3, 4, 4, generator=generator)
    images = F.interpolate(coarse, 32, mode="bilinear", align_corners=False)[labels]
    return images + 0.4 * torch.randn(count, 3, 32, 32, generator=generator), labels


def main(args):
    torch.manual_seed(args.seed)
    images, labels = make_images(args.images, 12, args.seed)
    model = VisionTransformer()
    groups = param_groups_lrd(model, args.lr, args.weight_decay, args.layer_decay)
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.999), fused=True)
    total = args.epochs * (args.images // args.batch_size)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: warmup_cosine(step, args.warmup, total))
    monitor = Monitor()
    criterion = nn.CrossEntropyLoss(label_smoothing=args.smoothing)
    for epoch in range(args.epochs):
        right, loss_sum = torch.zeros((), dtype=torch.long), torch.zeros(())
        for rows in torch.randperm(args.images).split(args.batch_size)[: args.images // args.batch_size]:
            logits = model(images[rows])
            loss = criterion(logits, labels[rows])
            optimizer.zero_grad()
            loss.backward()
            monitor.log_model_state(model)
            optimizer.step()
            scheduler.step()
            loss_sum += loss.detach()
            right += (logits.detach().argmax(dim=1) == labels[rows]).sum()
        steps = args.images // args.batch_size
        print(f"epoch {epoch}: loss {loss_sum.item() / steps:.4f} accuracy {right.item() / args.images:.3f}")
        print(monitor.report(steps))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=880)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--weight_decay", type=float, default=0.05)
    parser.add_argument("--layer_decay", type=float, default=0.75)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--smoothing", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=195)
    main(parser.parse_args())
