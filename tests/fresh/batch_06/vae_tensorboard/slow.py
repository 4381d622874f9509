"""Convolutional VAE on small pictures of planets, watched in TensorBoard."""

import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter

IMAGE, LATENT, BATCH, EPOCHS = 64, 32, 48, 3


def planets(count, seed):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[-1 : 1 : IMAGE * 1j, -1 : 1 : IMAGE * 1j]
    pictures = np.zeros((count, 3, IMAGE, IMAGE), dtype=np.uint8)
    for picture in pictures:
        cy, cx, radius = *rng.uniform(-0.3, 0.3, 2), rng.uniform(0.3, 0.6)
        disc = (yy - cy) ** 2 + (xx - cx) ** 2 < radius**2
        bands = 128 + 60 * np.sin(rng.uniform(4, 12) * yy + rng.uniform(0, 6))
        for channel, tint in zip(picture, rng.uniform(0.4, 1.2, 3)):
            channel[:] = np.clip(disc * bands * tint, 0, 255)
    return pictures


class VAE(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1), nn.ReLU(), nn.Conv2d(width, 2 * width, 4, 2, 1), nn.ReLU(),
            nn.Conv2d(2 * width, 4 * width, 4, 2, 1), nn.ReLU(), nn.Flatten(),
        )  # fmt: skip
        self.to_latent = nn.Linear(4 * width * 64, 2 * LATENT)
        self.from_latent = nn.Linear(LATENT, 4 * width * 64)
        self.decoder = nn.Sequential(
            nn.Unflatten(1, (4 * width, 8, 8)), nn.ReLU(),
            nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1), nn.ReLU(),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(width, 3, 4, 2, 1),
        )  # fmt: skip

    def forward(self, x):
        mean, logvar = self.to_latent(self.encoder(x)).chunk(2, dim=1)
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
        return self.decoder(self.from_latent(z)), mean, logvar


def vae_loss(logits, x, mean, logvar):
    recon = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / len(x)
    kl = -0.5 * (1 + logvar - mean.square() - logvar.exp()).sum() / len(x)
    return recon, kl


def train(folder):
    torch.manual_seed(42)
    np.save(os.path.join(folder, "planets.npy"), planets(1440, seed=42))
    images = torch.from_numpy(np.load(os.path.join(folder, "planets.npy")))
    loader = DataLoader(TensorDataset(images), batch_size=BATCH, shuffle=True, drop_last=True)
    writer = SummaryWriter(os.path.join(folder, "runs"))
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    step = 0
    for epoch in range(EPOCHS):
        for (batch,) in loader:
            x = batch.float() / 255
            logits, mean, logvar = model(x)
            recon, kl = vae_loss(logits, x, mean, logvar)
            loss = recon + kl
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

            writer.add_scalar("loss/recon", recon.item(), step)
            writer.add_scalar("loss/kl", kl.item(), step)
            writer.add_images("reconstruction", torch.cat([x, logits.detach().sigmoid()]), step)
            step += 1
        print(f"Epoch {epoch + 1}: recon {recon.item():.2f} kl {kl.item():.2f}")
    writer.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        train(folder)
