"""Heights of dunes from place, season and wind: layers of radial basis functions, then a linear read-out."""

import argparse
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Survey:
    points: int
    features: int
    noise: float
    seed: int

    def measure(self) -> tuple[Tensor, Tensor]:
        g = torch.Generator().manual_seed(self.seed)
        x = torch.rand(self.points, self.features, generator=g) * 2 - 1
        ridges = torch.sin(6 * x[:, 0] + 2 * x[:, 1]) + 0.5 * torch.cos(9 * x[:, 1] * x[:, 2])
        lee = torch.exp(-4 * (x[:, :3] - 0.2).square().sum(1))
        wind = x[:, 3:].mean(1)
        height = ridges + 2 * lee + 0.3 * wind + self.noise * torch.randn(self.points, generator=g)
        return x, height


class RadialBasis(nn.Module):
    """Gaussians around centres that are learned, each with a width of its own."""

    def __init__(self, features: int, centres: int):
        super().__init__()
        self.centres = nn.Parameter(torch.rand(centres, features) * 2 - 1)
        self.log_width = nn.Parameter(torch.zeros(centres))

    def squared_distances(self, x: Tensor) -> Tensor:
        difference = x.unsqueeze(1) - self.centres.unsqueeze(0)
        return difference.pow(2).sum(-1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.exp(-self.squared_distances(x) * torch.exp(-2 * self.log_width))


class DuneNet(nn.Module):
    def __init__(self, features: int, centres: int, width: int):
        super().__init__()
        self.basis = RadialBasis(features, centres)
        self.mix = nn.Sequential(
            nn.Linear(centres + features, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
        )
        self.out = nn.Linear(width, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_var = self.out(self.mix(torch.cat([self.basis(x), x], dim=1))).unbind(1)
        return mean, log_var.clamp(-6, 4)


def gaussian_nll(mean: Tensor, log_var: Tensor, target: Tensor) -> Tensor:
    return 0.5 * (log_var + (target - mean).square() * torch.exp(-log_var)).mean()


class Average:
    def __init__(self) -> None:
        self.total, self.count = torch.zeros(()), 0

    def add(self, value: Tensor) -> None:
        self.total += value.detach()
        self.count += 1

    def __float__(self) -> float:
        return self.total.item() / max(1, self.count)


def run(args: argparse.Namespace) -> None:
    torch.manual_seed(args.seed)
    x, height = Survey(args.points, args.features, 0.1, args.seed).measure()
    cut = args.points * 9 // 10
    model = DuneNet(args.features, args.centres, args.width)
    groups = [
        {"params": model.basis.parameters(), "lr": args.lr * 3},
        {"params": [*model.mix.parameters(), *model.out.parameters()], "lr": args.lr},
    ]
    optimizer = torch.optim.RMSprop(groups, lr=args.lr, momentum=0.5)
    for epoch in range(args.epochs):
        average = Average()
        for rows in torch.randperm(cut).split(args.batch):
            loss = gaussian_nll(*model(x[rows]), height[rows])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            optimizer.step()
            average.add(loss)
        with torch.no_grad():
            mean, _ = model(x[cut:])
            rmse = (mean - height[cut:]).square().mean().sqrt().item()
        print(f"epoch {epoch}: nll {float(average):.4f}, held-out RMSE {rmse:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=40000)
    parser.add_argument("--features", type=int, default=8)
    parser.add_argument("--centres", type=int, default=256)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=5)
    run(parser.parse_args())
