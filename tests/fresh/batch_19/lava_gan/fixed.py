"""GAN on small pictures of lava, hinge loss; the Frechet distance of features says how the generator comes along."""

import argparse
import json
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.utils.data import DataLoader, TensorDataset


def sqrtm(matrix: torch.Tensor, rounds: int = 100) -> torch.Tensor:
    """Square root of a matrix by the Newton-Schulz iteration."""
    norm = matrix.norm()
    y = matrix / norm
    eye = torch.eye(len(matrix), dtype=matrix.dtype)
    z = eye.clone()
    for _ in range(rounds):
        t = 0.5 * (3.0 * eye - z @ y)
        y, z = y @ t, t @ z
        if torch.norm(norm * (y @ y) - matrix) / norm < 1e-9:
            break
    return y * norm.sqrt()


class Moments:
    """Mean and covariance of features in double precision."""

    def __init__(self, features: torch.Tensor) -> None:
        features = features.double()
        self.mean = features.mean(dim=0)
        self.cov = torch.cov(features.t())

    def distance(self, other: "Moments") -> float:
        eps = 1e-6 * torch.eye(len(self.mean), dtype=torch.float64)
        product = (self.cov + eps) @ (other.cov + eps)
        root = torch.linalg.eigvals(product).real.clamp_min(0).sqrt().sum()
        gap = (self.mean - other.mean).square().sum()
        return (gap + self.cov.trace() + other.cov.trace() - 2.0 * root).item()


class Features(nn.Module):
    """A fixed random network, whose features stand for those of a classifier."""

    def __init__(self, dim: int = 160) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(64, dim, 3, stride=2, padding=1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.requires_grad_(False).eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


def up(n_in: int, n_out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.ConvTranspose2d(n_in, n_out, 4, stride=2, padding=1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU(True)
    )


def down(n_in: int, n_out: int) -> nn.Sequential:
    return nn.Sequential(spectral_norm(nn.Conv2d(n_in, n_out, 4, stride=2, padding=1)), nn.LeakyReLU(0.2, True))


class Generator(nn.Module):
    def __init__(self, latent: int, width: int = 16) -> None:
        super().__init__()
        self.latent, self.width = latent, width
        self.start = nn.Linear(latent, 4 * width * 16)
        self.ups = nn.Sequential(up(4 * width, 2 * width), up(2 * width, width))
        self.out = nn.ConvTranspose2d(width, 3, 4, stride=2, padding=1)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return self.out(self.ups(self.start(z).view(-1, 4 * self.width, 4, 4))).tanh()


class Critic(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.body = nn.Sequential(down(3, width), down(width, 2 * width), down(2 * width, 4 * width))
        self.head = spectral_norm(nn.Linear(4 * width * 16, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).flatten(1))


def lava(count: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randn(count, 1, 6, 6, generator=generator)
    field = F.interpolate(coarse, size=32, mode="bicubic")
    glow = torch.sigmoid(4 * field)
    return torch.cat([glow, glow.square(), 0.2 * glow], dim=1) * 2 - 1


class Gan:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        data = lava(args.pictures, seed=1)
        self.loader = DataLoader(TensorDataset(data), args.batch, shuffle=True, drop_last=True)
        self.generator, self.critic = Generator(args.latent), Critic()
        self.g_opt = torch.optim.Adam(self.generator.parameters(), lr=args.lr, betas=(0.0, 0.9))
        self.c_opt = torch.optim.Adam(self.critic.parameters(), lr=4 * args.lr, betas=(0.0, 0.9))
        self.features = Features()
        with torch.no_grad():
            self.real = Moments(self.features(data[: args.judged]))
        self.fixed_z = torch.randn(args.judged, args.latent)
        self.history: list[dict[str, float]] = []

    def critic_step(self, real: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            fake = self.generator(torch.randn(len(real), self.args.latent))
        loss = F.relu(1 - self.critic(real)).mean() + F.relu(1 + self.critic(fake)).mean()
        self.c_opt.zero_grad()
        loss.backward()
        self.c_opt.step()
        return loss.detach()

    def generator_step(self) -> torch.Tensor:
        self.critic.requires_grad_(False)
        loss = -self.critic(self.generator(torch.randn(self.args.batch, self.args.latent))).mean()
        self.g_opt.zero_grad()
        loss.backward()
        self.g_opt.step()
        self.critic.requires_grad_(True)
        return loss.detach()

    @torch.no_grad()
    def judge(self) -> float:
        self.generator.eval()
        found = Moments(torch.cat([self.features(self.generator(z)) for z in self.fixed_z.split(64)]))
        self.generator.train()
        return found.distance(self.real)

    def train(self, folder: Path) -> None:
        step = 0
        while step < self.args.steps:
            for (real,) in self.loader:
                c_loss, g_loss = self.critic_step(real), self.generator_step()
                step += 1
                if step % self.args.judge_every == 0:
                    row = {"step": step, "critic": c_loss.item(), "generator": g_loss.item(), "fid": self.judge()}
                    print(", ".join(f"{k} {v:.3f}" for k, v in row.items()))
                    self.history.append(row)
                if step == self.args.steps:
                    break
        (folder / "history.json").write_text(json.dumps(self.history))
        torch.save(self.generator.state_dict(), folder / "generator.pt")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--latent", type=int, default=64)
    parser.add_argument("--pictures", type=int, default=1024)
    parser.add_argument("--judged", type=int, default=384)
    parser.add_argument("--judge-every", type=int, default=60)
    parser.add_argument("--lr", type=float, default=1e-4)
    options = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as place:
        Gan(options).train(Path(place))
