"""A variational autoencoder of outlines of pottery sherds, with Lightning."""

from __future__ import annotations

import argparse
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")


def make_sherds(count: int, side: int, seed: int) -> torch.Tensor:
    """Filled outlines: a circle whose radius depends on the angle."""
    generator = torch.Generator().manual_seed(seed)
    axis = torch.linspace(-1, 1, side)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    angle, radius = torch.atan2(y, x), torch.hypot(x, y)
    waves = torch.rand(count, 4, 1, 1, generator=generator)
    edge = 0.35 + 0.3 * waves[:, 0] + 0.1 * torch.cos(3 * angle + 6.3 * waves[:, 1])
    edge = edge + 0.08 * torch.cos(5 * angle + 6.3 * waves[:, 2])
    return (radius < edge).float().unsqueeze(1)


class Encoder(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 3, stride=2, padding=1),
            nn.LeakyReLU(0.1),
            nn.Conv2d(width, width, 3, padding=1),
            nn.LeakyReLU(0.1),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.LeakyReLU(0.1),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1),
            nn.LeakyReLU(0.1),
            nn.Conv2d(2 * width, 4 * width, 3, stride=2, padding=1),
            nn.LeakyReLU(0.1),
            nn.Flatten(),
        )

    def forward(self, sherds: torch.Tensor) -> torch.Tensor:
        return self.layers(sherds)


class Decoder(nn.Module):
    def __init__(self, latent: int, width: int, side: int) -> None:
        super().__init__()
        self.width, self.side = width, side // 8
        self.first = nn.Linear(latent, 4 * width * self.side**2)
        self.layers = nn.Sequential(
            nn.ConvTranspose2d(4 * width, 2 * width, 4, stride=2, padding=1),
            nn.LeakyReLU(0.1),
            nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1),
            nn.LeakyReLU(0.1),
            nn.ConvTranspose2d(width, 1, 4, stride=2, padding=1),
        )

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        maps = self.first(codes).view(-1, 4 * self.width, self.side, self.side)
        return self.layers(maps)


class SherdVAE(L.LightningModule):
    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        self.args = args
        self.encoder = Encoder(args.width)
        self.decoder = Decoder(args.latent, args.width // 2, args.side)
        flat = 4 * args.width * (args.side // 8) ** 2
        self.fc_mu = nn.Linear(flat, args.latent)
        self.fc_logvar = nn.Linear(flat, args.latent)

    def encode(self, sherds: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mu = self.fc_mu(self.encoder(sherds))
        logvar = self.fc_logvar(self.encoder(sherds))
        return mu, logvar

    def forward(self, sherds: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mu, logvar = self.encode(sherds)
        codes = mu + torch.exp(0.5 * logvar) * torch.randn_like(mu)
        return self.decoder(codes), mu, logvar

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        (sherds,) = batch
        logits, mu, logvar = self(sherds)
        drawn = nn.functional.binary_cross_entropy_with_logits(logits, sherds, reduction="sum") / len(sherds)
        divergence = -0.5 * (1 + logvar - mu.square() - logvar.exp()).sum(dim=1).mean()
        self.log_dict({"drawn": drawn, "divergence": divergence}, on_step=False, on_epoch=True)
        return drawn + self.args.beta * divergence

    def on_train_epoch_end(self) -> None:
        values = {name: round(value.item(), 2) for name, value in self.trainer.callback_metrics.items()}
        print(f"epoch {self.current_epoch}: {values}")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.args.lr)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sherds", type=int, default=1120)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--width", type=int, default=24)
    parser.add_argument("--latent", type=int, default=24)
    parser.add_argument("--beta", type=float, default=0.5)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    L.seed_everything(71, verbose=False)
    sherds = TensorDataset(make_sherds(args.sherds, args.side, seed=71))
    loader = DataLoader(sherds, batch_size=args.batch_size, shuffle=True, drop_last=True)
    trainer = L.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(SherdVAE(args), loader)


if __name__ == "__main__":
    main()
