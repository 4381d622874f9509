"""Families of proteins from their sequences: a mixer trained with a second-order optimizer."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Shampoo(torch.optim.Optimizer):
    """Preconditions each matrix of gradients from the left and the right by inverse fourth roots of their moments."""

    def __init__(self, params, lr=0.05, momentum=0.9, decay=0.95, epsilon=1e-4, precondition_every=1):
        super().__init__(params, {"lr": lr, "momentum": momentum, "decay": decay})
        self.epsilon, self.precondition_every = epsilon, precondition_every

    def inverse_root(self, moment):
        values, vectors = torch.linalg.eigh(moment + self.epsilon * torch.eye(len(moment)))
        return (vectors * values.clamp(min=self.epsilon).pow(-0.25)) @ vectors.t()

    def preconditioned(self, gradient, state, decay):
        if gradient.dim() < 2:
            return gradient
        matrix = gradient.flatten(1)
        if not state["step"]:
            state["left"], state["right"] = torch.zeros(len(matrix), len(matrix)), torch.zeros(2 * matrix.shape[1:])
        state["left"].lerp_(matrix @ matrix.t(), 1 - decay)
        state["right"].lerp_(matrix.t() @ matrix, 1 - decay)
        if state["step"] % self.precondition_every == 0:
            state["roots"] = self.inverse_root(state["left"]), self.inverse_root(state["right"])
        out = state["roots"][0] @ matrix @ state["roots"][1]
        return (out * (matrix.norm() / (out.norm() + 1e-8))).view_as(gradient)

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    state["step"], state["velocity"] = 0, torch.zeros_like(parameter)
                direction = self.preconditioned(parameter.grad, state, group["decay"])
                state["velocity"].mul_(group["momentum"]).add_(direction)
                parameter.sub_(state["velocity"], alpha=group["lr"])
                state["step"] += 1


def proteins(count, families, length, seed):
    """Each family has a motif that stands somewhere in its sequences."""
    g = torch.Generator().manual_seed(seed)
    motifs = torch.randint(20, (families, 12), generator=torch.Generator().manual_seed(8))
    sequence = torch.randint(20, (count, length), generator=g)
    family = torch.randint(families, (count,), generator=g)
    start = torch.randint(length - 12, (count, 1), generator=g)
    return sequence.scatter(1, start + torch.arange(12), motifs[family]), family


class MixerBlock(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Sequential(nn.Linear(tokens, tokens), nn.GELU(), nn.Linear(tokens, tokens))
        self.channels = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self, families, length, width=128, blocks=2, patch=4):
        super().__init__()
        self.letter = nn.Embedding(20, 16)
        self.patches = nn.Conv1d(16, width, patch, stride=patch)
        self.blocks = nn.Sequential(*(MixerBlock(length // patch, width) for _ in range(blocks)))
        self.head = nn.Linear(width, families)

    def forward(self, sequence):
        x = self.patches(self.letter(sequence).transpose(1, 2)).transpose(1, 2)
        return self.head(self.blocks(x).mean(1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--proteins", type=int, default=6400)
    parser.add_argument("--families", type=int, default=16)
    parser.add_argument("--length", type=int, default=192)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=0.03)
    args = parser.parse_args()
    torch.manual_seed(0)
    sequence, family = proteins(args.proteins, args.families, args.length, seed=23)
    model = Mixer(args.families, args.length)
    optimizer = Shampoo(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        for step, index in enumerate(torch.randperm(args.proteins).split(args.batch_size)):
            loss = F.cross_entropy(model(sequence[index]), family[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 25 == 0:
                print(f"epoch {epoch} step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
