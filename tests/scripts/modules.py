"""Trains a model whose modules are known: `transformer`, `cnn`, `two` models, or one with `hostile` names."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

HOSTILE = [
    'a"b',
    "<script>alert(1)</script>",
    "x|y",
    "c\\d",
    "line\nbreak",
    "{{7*7}}",
    "100%25",
    "\u202eevil",
    "é",
    "half\udc80",
    "'",
]


class Transformer(nn.Module):
    """Two encoder layers between an embedding and a head."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        layers = (nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0) for _ in range(2))
        self.layers = nn.ModuleList(layers)
        self.head = nn.Linear(32, 50)

    def forward(self, tokens):
        """Scores of each token."""
        hidden = self.embed(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden)


class Cnn(nn.Module):
    """Convolutions of every kind, and a head."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3, groups=4)
        )
        self.up = nn.ConvTranspose2d(16, 4, 2, stride=2)
        self.head = nn.Linear(4, 10)

    def forward(self, images):
        """Scores of each image."""
        return self.head(self.up(self.features(images)).mean((2, 3)))


class Generator(nn.Module):
    """A model whose modules have the names that those of the other have."""

    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 32))

    def forward(self, noise):
        """Samples."""
        return self.main(noise)


class Critic(nn.Module):
    """The other model."""

    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, samples):
        """Scores."""
        return self.main(samples)


class Hostile(nn.Module):
    """Modules of names that a page, a trace or a shell could take for something else."""

    def __init__(self):
        super().__init__()
        for name in HOSTILE:
            self.add_module(name, nn.Linear(8, 8))

    def forward(self, values):
        """All of them, one after the other."""
        for module in self.children():
            values = module(values)
        return values


def batch(kind, size):
    """Inputs of a model of that kind."""
    if kind == "transformer":
        return torch.randint(0, 50, (size, 12))
    return torch.randn(size, 3, 16, 16) if kind == "cnn" else torch.randn(size, 8)


def model_of(kind):
    """A model of that kind."""
    return {"transformer": Transformer, "cnn": Cnn, "two": Generator, "hostile": Hostile}[kind]()


def main(kind):
    """Trains."""
    model = model_of(kind)
    critic = Critic() if kind == "two" else nn.Identity()
    optimizer = torch.optim.SGD([*model.parameters(), *critic.parameters()], lr=0.01)
    for (inputs,) in DataLoader(TensorDataset(batch(kind, 4 * 70)), batch_size=4):
        optimizer.zero_grad()
        critic(model(inputs)).sum().backward()
        optimizer.step()
    print("trained")


if __name__ == "__main__":
    main(sys.argv[1])
