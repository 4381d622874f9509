"""Variational autoencoder with a convolutional encoder; a solver with annealed weight of the prior."""

import tempfile

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Faces(Dataset):
    def __init__(self, count, size=32):
        g = torch.Generator().manual_seed(0)
        ys, xs = torch.meshgrid(torch.linspace(-1, 1, size), torch.linspace(-1, 1, size), indexing="ij")
        wide, tall, tilt = (torch.rand(count, 1, 1, generator=g) for _ in range(3))
        ring = ((xs / (0.5 + 0.3 * wide)) ** 2 + (ys / (0.5 + 0.3 * tall)) ** 2 < 1).float()
        eyes = ((xs.abs() - 0.25) ** 2 + (ys + 0.2 * tilt) ** 2 < 0.02).float()
        self.images = (ring * 0.8 - eyes * 0.6).clamp(0, 1).unsqueeze(1)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i]


class VAE(nn.Module):
    def __init__(self, latent=16, width=24):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, width, 4, 2, 1),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 4, 2, 1),
            nn.ReLU(),
            nn.Conv2d(2 * width, 4 * width, 4, 2, 1),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.moments = nn.Linear(4 * width * 16, 2 * latent)
        self.start = nn.Linear(latent, 4 * width * 16)
        self.decoder = nn.Sequential(
            nn.Unflatten(1, (4 * width, 4, 4)),
            nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(width, 1, 4, 2, 1),
        )

    def forward(self, x):
        mu, logvar = self.moments(self.encoder(x)).chunk(2, 1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.decoder(self.start(z)), mu, logvar


class Solver:
    def __init__(self, epochs=3, batch=32, lr=1e-3):
        self.loader = DataLoader(Faces(1600), batch, shuffle=True)
        self.net, self.epochs, self.step = VAE(), epochs, 0
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=lr)

    def beta(self):
        return min(1.0, self.step / 60)

    def losses(self, x):
        logits, mu, logvar = self.net(x)
        rebuilt = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / len(x)
        kld = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum() / len(x)
        return rebuilt, kld

    def train(self):
        for epoch in range(self.epochs):
            for x in self.loader:
                rebuilt, kld = self.losses(x)
                self.optimizer.zero_grad()
                (rebuilt + self.beta() * kld).backward()
                self.optimizer.step()
                self.step += 1
                if self.step % 50 == 0:
                    print(f"[{self.step}] epoch {epoch} recon {rebuilt.item():.2f} kld {kld.item():.2f}")


if __name__ == "__main__":
    torch.manual_seed(1)
    solver = Solver()
    solver.train()
    with tempfile.TemporaryFile() as file:
        torch.save(solver.net.state_dict(), file)
