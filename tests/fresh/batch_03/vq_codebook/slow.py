"""A VQ-VAE in two stages: the encoder is warmed up, then its codebook is placed by k-means and trained on."""

import torch
from torch import nn
from torch.nn import functional as F


def kmeans_once(x, clusters, iterations, generator):
    centres = x[torch.randperm(len(x), generator=generator)[:clusters]]
    for _ in range(iterations):
        nearest = torch.cdist(x, centres).argmin(dim=1)
        sums = torch.zeros_like(centres).index_add_(0, nearest, x)
        counts = torch.bincount(nearest, minlength=clusters)[:, None]
        centres = torch.where(counts > 0, sums / counts.clamp(min=1), centres)
    return centres, torch.cdist(x, centres).min(dim=1).values.square().sum()


def kmeans(x, clusters, generator, n_init=10, iterations=20):
    """The best of several runs."""
    runs = [kmeans_once(x, clusters, iterations, generator) for _ in range(n_init)]
    return min(runs, key=lambda run: run[1].item())[0]


class VectorQuantizer(nn.Module):
    def __init__(self, codes, dim, beta=0.25):
        super().__init__()
        self.codebook = nn.Embedding(codes, dim)
        self.beta = beta

    def forward(self, z):
        flat = z.permute(0, 2, 3, 1).reshape(-1, z.size(1))
        codes = torch.cdist(flat.detach(), self.codebook.weight.detach()).argmin(dim=1)
        quantised = self.codebook(codes).view(len(z), z.size(2), z.size(3), -1).permute(0, 3, 1, 2)
        loss = F.mse_loss(quantised, z.detach()) + self.beta * F.mse_loss(z, quantised.detach())
        return z + (quantised - z).detach(), loss, codes

    @torch.no_grad()
    def reestimate(self, features, generator):
        self.codebook.weight.copy_(kmeans(features, self.codebook.num_embeddings, generator))


class VQVAE(nn.Module):
    def __init__(self, width=24, codes=128, dim=16):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1),
            nn.ReLU(),
            nn.Conv2d(width, width, 4, 2, 1),
            nn.ReLU(),
            nn.Conv2d(width, dim, 1),
        )
        self.quantizer = VectorQuantizer(codes, dim)
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(dim, width, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(width, 3, 4, 2, 1)
        )

    def forward(self, x, quantise):
        z = self.encoder(x)
        if not quantise:
            return F.mse_loss(self.decoder(z), x)
        z, loss, _ = self.quantizer(z)
        return F.mse_loss(self.decoder(z), x) + loss


def textures(count, generator):
    grid = torch.linspace(0, 6.28, 32)
    freq = torch.randint(1, 5, (count, 3, 2, 1), generator=generator)
    phase = 6.28 * torch.rand(count, 3, 2, 1, generator=generator)
    waves = torch.sin(freq * grid + phase)
    return waves[:, :, 0, :, None] * waves[:, :, 1, None, :]


def run_epochs(model, images, optimizer, epochs, quantise, batch_size=16):
    for epoch in range(epochs):
        for rows in torch.randperm(len(images)).split(batch_size):
            loss = model(images[rows], quantise)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"{'vq' if quantise else 'warm-up'} epoch {epoch}: {loss.item():.4f}")


def main():
    torch.manual_seed(70)
    generator = torch.Generator().manual_seed(71)
    images = textures(640, generator)
    model = VQVAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    run_epochs(model, images, optimizer, 1, quantise=False)
    for _ in range(3):
        with torch.no_grad():
            features = model.encoder(images[:192]).permute(0, 2, 3, 1).flatten(0, 2)
        model.quantizer.reestimate(features, generator)
        run_epochs(model, images, optimizer, 2, quantise=True)


if __name__ == "__main__":
    main()
