"""Counting and classifying shapes with a convolutional backbone and a decoder of queries.

Learning rates decay from the head to the first layers, and norms and biases have no weight decay.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

SHAPES = 6


def scenes(count, seed):
    """Pictures of 32 x 32 with a few coloured squares, and how many there are of each colour."""
    g = torch.Generator().manual_seed(seed)
    colours = torch.rand(SHAPES, 3, generator=torch.Generator().manual_seed(9))
    pictures = 0.1 * torch.randn(count, 3, 32, 32, generator=g)
    numbers = torch.zeros(count, SHAPES, dtype=torch.long)
    kinds = torch.randint(SHAPES, (count, 5), generator=g)
    places = torch.randint(26, (count, 5, 2), generator=g)
    for i in range(count):
        for kind, (y, x) in zip(kinds[i].tolist(), places[i].tolist()):
            pictures[i, :, y : y + 6, x : x + 6] = colours[kind][:, None, None]
            numbers[i, kind] += 1
    return pictures, numbers.clamp(max=3)


class Bottleneck(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.conv1 = nn.Conv2d(width, inner, 1, bias=False)
        self.conv2 = nn.Conv2d(inner, inner, 3, 1, 1, groups=inner, bias=False)
        self.conv3 = nn.Conv2d(inner, width, 1, bias=False)
        self.norm1, self.norm2, self.norm3 = nn.BatchNorm2d(inner), nn.BatchNorm2d(inner), nn.BatchNorm2d(width)

    def forward(self, x):
        h = F.relu(self.norm1(self.conv1(x)))
        h = F.relu(self.norm2(self.conv2(h)))
        return x + self.norm3(self.conv3(h))


class Detector(nn.Module):
    def __init__(self, width=32, depth=12, decoder_layers=3):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, 4)
        self.blocks = nn.ModuleList(Bottleneck(width, width) for _ in range(depth))
        layer = nn.TransformerDecoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.decoder = nn.TransformerDecoder(layer, decoder_layers)
        self.queries = nn.Parameter(0.1 * torch.randn(SHAPES, width))
        self.head = nn.Linear(width, 4)

    def forward(self, pictures):
        x = self.stem(pictures)
        for block in self.blocks:
            x = block(x)
        memory = x.flatten(2).transpose(1, 2)
        return self.head(self.decoder(self.queries.expand(len(memory), -1, -1), memory))


def layer_of(name, depth):
    if name.startswith("stem"):
        return 0
    if name.startswith("blocks"):
        return 1 + int(name.split(".")[1])
    return depth + 1


def get_param_dict(model, args):
    """Optimizer groups: a lower learning rate the nearer a weight is to the input."""
    groups = []
    depth = len(model.blocks)
    for name, parameter in model.named_parameters():
        scale = args.layer_decay ** ((depth + 1 - layer_of(name, depth)) // 5)
        decay = args.weight_decay if parameter.dim() > 1 else 0.0
        groups.append({"params": [parameter], "lr": args.lr * scale, "weight_decay": decay})
    return groups


def train(args):
    torch.manual_seed(args.seed)
    pictures, numbers = scenes(args.pictures, args.seed)
    model = Detector()
    optimizer = torch.optim.AdamW(get_param_dict(model, args), lr=args.lr, fused=True)
    steps = args.epochs * (args.pictures // args.batch_size)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, 2 * (1 - step / steps)))
    for epoch in range(args.epochs):
        total = 0.0
        batches = torch.randperm(args.pictures).split(args.batch_size)
        for index in batches:
            loss = F.cross_entropy(model(pictures[index]).transpose(1, 2), numbers[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(batches):.4f} lr {scheduler.get_last_lr()[-1]:.2e}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--pictures", type=int, default=1120)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--layer-decay", type=float, default=0.7)
    parser.add_argument("--weight-decay", type=float, default=1e-4)
    parser.add_argument("--seed", type=int, default=0)
    train(parser.parse_args())
