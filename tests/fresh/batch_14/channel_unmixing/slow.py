"""Unmixes multispectral fluorescence with a matrix for each pixel group and a small network around it."""

import argparse

import torch
import torch.nn as nn


def make_scenes(count, bands, dyes, pixels, seed):
    generator = torch.Generator().manual_seed(seed)
    spectra = torch.rand(dyes, bands, generator=generator) ** 2
    amounts = torch.rand(count, pixels, dyes, generator=generator) ** 3
    distortion = 1 + 0.1 * torch.randn(count, 1, bands, generator=generator)
    observed = amounts @ spectra * distortion
    return observed + 0.02 * torch.randn(observed.shape, generator=generator), amounts


class GroupedUnmixing(nn.Module):
    """A matrix of its own for each group of bands, as the filter wheel has several cubes."""

    def __init__(self, groups, bands, hidden):
        super().__init__()
        self.groups = groups
        self.matrix = nn.Parameter(torch.randn(groups, hidden, bands // groups) / (bands // groups) ** 0.5)
        self.bias = nn.Parameter(torch.zeros(groups * hidden))

    def forward(self, x):
        scenes, pixels, bands = x.shape
        x = x.reshape(scenes * pixels, self.groups, bands // self.groups, 1)
        mixed = self.matrix @ x
        return mixed.reshape(scenes, pixels, -1) + self.bias


class PixelMLP(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.layers = nn.Sequential(
            nn.LayerNorm(inputs), nn.Linear(inputs, inputs), nn.GELU(), nn.Linear(inputs, outputs), nn.Softplus()
        )

    def forward(self, x):
        return self.layers(x)


class UnmixingNet(nn.Module):
    def __init__(self, bands, dyes, groups=4, hidden=24):
        super().__init__()
        self.calibration = nn.Sequential(nn.Linear(bands, 32), nn.ReLU(), nn.Linear(32, bands))
        self.unmix = GroupedUnmixing(groups, bands, hidden)
        self.mlp = PixelMLP(groups * hidden, dyes)

    def forward(self, observed):
        gain = 1 + 0.1 * torch.tanh(self.calibration(observed.mean(dim=1, keepdim=True)))
        return self.mlp(torch.relu(self.unmix(observed * gain)))


class Meter:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def update(self, value, count):
        self.total += value * count
        self.count += count

    @property
    def mean(self):
        return self.total / max(self.count, 1)


@torch.no_grad()
def validate(model, observed, amounts, batch_size):
    model.eval()
    meter = Meter()
    for x, y in zip(observed.split(batch_size), amounts.split(batch_size)):
        meter.update((model(x) - y).abs().mean().item(), len(x))
    model.train()
    return meter.mean


def fit(args):
    torch.manual_seed(args.seed)
    observed, amounts = make_scenes(args.scenes, args.bands, args.dyes, args.pixels, args.seed)
    cut = int(0.9 * args.scenes)
    model = UnmixingNet(args.bands, args.dyes)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        meter = Meter()
        for index in torch.randperm(cut).split(args.batch_size):
            prediction = model(observed[index])
            loss = nn.functional.smooth_l1_loss(prediction, amounts[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            meter.update(loss.item(), len(index))
        error = validate(model, observed[cut:], amounts[cut:], args.batch_size)
        print(f"epoch {epoch}: loss {meter.mean:.5f}, error {error:.5f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenes", type=int, default=400)
    parser.add_argument("--bands", type=int, default=48)
    parser.add_argument("--dyes", type=int, default=5)
    parser.add_argument("--pixels", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=9)
    fit(parser.parse_args())
