"""Adversarial training: each batch is replaced by the worst pictures that projected gradients find nearby."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F

MEAN, STD = 0.3, 0.3


class Normalise(nn.Module):
    def forward(self, x):
        return (x - MEAN) / STD


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x):
        return F.relu(self.conv2(F.relu(self.conv1(x))) + self.shortcut(x))


def small_resnet(classes):
    return nn.Sequential(
        Normalise(),
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        Block(16, 24, 2),
        Block(24, 48, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(48, classes),
    )


def get_loaders(args):
    """Disks whose place and colour say the class."""
    generator = torch.Generator().manual_seed(args.seed)
    labels = torch.randint(0, 10, (args.samples,), generator=generator)
    axis = torch.linspace(-1, 1, args.size)
    angle = 2 * torch.pi * labels / 10
    distance = (axis[None, :, None] - 0.5 * angle.sin()[:, None, None]).square()
    distance = distance + (axis[None, None] - 0.5 * angle.cos()[:, None, None]).square()
    shape = torch.sigmoid(20 * (0.15 - distance))[:, None]
    colour = torch.rand(10, 3, generator=generator)[labels][:, :, None, None]
    noise = 0.2 * torch.rand(args.samples, 3, args.size, args.size, generator=generator)
    pictures = (shape * colour + noise).clamp(0, 1)
    cut = args.samples * 9 // 10
    return (pictures[:cut], labels[:cut]), (pictures[cut:], labels[cut:])


def attack_pgd(model, x, y, epsilon, alpha, iterations):
    delta = torch.empty_like(x).uniform_(-epsilon, epsilon)
    delta = (x + delta).clamp(0, 1) - x
    for _ in range(iterations):
        delta.requires_grad_()
        attack_loss = F.cross_entropy(model(x + delta), y)
        attack_loss.backward()
        grad = delta.grad
        with torch.no_grad():
            delta = (delta + alpha * grad.sign()).clamp(-epsilon, epsilon)
            delta = (x + delta).clamp(0, 1) - x
    return delta.detach()


def evaluate_pgd(model, test, args):
    x, y = test
    model.eval()
    delta = attack_pgd(model, x, y, args.epsilon, args.alpha, args.attack_iters)
    with torch.inference_mode():
        clean = (model(x).argmax(dim=1) == y).float().mean().item()
        robust = (model(x + delta).argmax(dim=1) == y).float().mean().item()
    model.train()
    return clean, robust


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=2400)
    parser.add_argument("--size", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr-max", type=float, default=0.1)
    parser.add_argument("--epsilon", type=float, default=8 / 255)
    parser.add_argument("--alpha", type=float, default=2 / 255)
    parser.add_argument("--attack-iters", type=int, default=4)
    parser.add_argument("--seed", type=int, default=113)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    (pictures, labels), test = get_loaders(args)
    model = small_resnet(10)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr_max, momentum=0.9, weight_decay=5e-4)
    steps = len(pictures) // args.batch_size * args.epochs
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr_max, total_steps=steps)
    for epoch in range(args.epochs):
        losses = []
        for rows in torch.randperm(len(pictures)).split(args.batch_size):
            if len(rows) < args.batch_size:
                break
            x, y = pictures[rows], labels[rows]
            delta = attack_pgd(model, x, y, args.epsilon, args.alpha, args.attack_iters)
            loss = F.cross_entropy(model(x + delta), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            losses.append(loss.detach())
        clean, robust = evaluate_pgd(model, test, args)
        print(f"epoch {epoch}: loss {torch.stack(losses).mean():.4f} clean {clean:.3f} robust {robust:.3f}")


if __name__ == "__main__":
    main()
