"""A VQ-VAE on small pictures of moths; the codebook follows running means that are kept by matrix products."""

import torch
from torch import nn
from torch.nn import functional as F


def moths(count, size=32):
    """Two wings of random size and tint, mirrored."""
    side = torch.linspace(-1, 1, size)
    y, x = side[:, None], side.abs()[None]
    wide, tall = (0.4 + 0.5 * torch.rand(2, count, 1, 1)).unbind(0)
    wing = torch.sigmoid(12 * (1 - (x / wide) ** 2 - (y / tall) ** 2))[:, None]
    stripes = 0.5 + 0.5 * torch.sin(x * (4 + 10 * torch.rand(count, 1, 1)))[:, None]
    return wing * stripes * torch.rand(count, 3, 1, 1) * 2 - 1 + 0.03 * torch.randn(count, 3, size, size)


class Codebook(nn.Module):
    def __init__(self, codes=128, dim=32, decay=0.98):
        super().__init__()
        self.decay = decay
        self.register_buffer("vectors", torch.randn(codes, dim))
        self.register_buffer("counts", torch.ones(codes))
        self.register_buffer("sums", self.vectors.clone())

    def forward(self, z):
        flat = z.permute(0, 2, 3, 1).reshape(-1, z.shape[1])
        with torch.no_grad():
            distance = self.vectors.square().sum(1) - 2 * flat @ self.vectors.t()
            which = distance.argmin(1)
        chosen = F.embedding(which, self.vectors).view(len(z), *z.shape[2:], -1).permute(0, 3, 1, 2)
        if self.training:
            self.follow(flat.detach(), which)
        return z + (chosen - z).detach(), F.mse_loss(z, chosen.detach())

    @torch.no_grad()
    def follow(self, flat, which):
        self.counts.lerp_(torch.bincount(which, minlength=len(self.counts)).float(), 1 - self.decay)
        self.sums.lerp_(torch.zeros_like(self.sums).index_add_(0, which, flat), 1 - self.decay)
        self.vectors.copy_(self.sums / self.counts.clamp(min=1e-3)[:, None])


class VQVAE(nn.Module):
    def __init__(self, width=32, dim=32):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1),
            nn.ReLU(),
            nn.Conv2d(width, width, 4, 2, 1),
            nn.ReLU(),
            nn.Conv2d(width, dim, 3, 1, 1),
        )
        self.codebook = Codebook(dim=dim)
        self.decoder = nn.Sequential(
            nn.Conv2d(dim, width, 3, 1, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(width, width, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(width, 3, 4, 2, 1),
        )

    def forward(self, x):
        z, commitment = self.codebook(self.encoder(x))
        return self.decoder(z), commitment


def main():
    torch.manual_seed(4)
    pictures = moths(2400)
    model = VQVAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    for epoch in range(4):
        total = torch.zeros(2)
        batches = torch.randperm(len(pictures)).split(48)
        for index in batches:
            x = pictures[index]
            reconstruction, commitment = model(x)
            error = F.mse_loss(reconstruction, x)
            optimizer.zero_grad()
            (error + 0.25 * commitment).backward()
            optimizer.step()
            total += torch.stack([error.detach(), commitment.detach()])
        error, commitment = (total / len(batches)).tolist()
        print(f"epoch {epoch}: error {error:.4f} commitment {commitment:.4f}")


if __name__ == "__main__":
    main()
