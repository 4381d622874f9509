"""A variational autoencoder of gene expression in single cells."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
GENES, LATENT = 2000, 20


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(GENES, 256), nn.LayerNorm(256), nn.ReLU(), nn.Linear(256, 2 * LATENT))
        self.decoder = nn.Sequential(nn.Linear(LATENT, 128), nn.LayerNorm(128), nn.ReLU(), nn.Linear(128, GENES))

    def encode(self, x):
        return self.encoder(torch.log1p(x)).chunk(2, 1)

    def reparameterise(self, mean, logvar):
        return mean + torch.randn_like(mean) * (0.5 * logvar).exp()

    def forward(self, x):
        mean, logvar = self.encode(x)
        return self.decoder(self.reparameterise(mean, logvar))


def elbo(model, counts, beta):
    rate = model(counts)
    mean, logvar = model.encode(counts)
    fit = nn.functional.poisson_nll_loss(rate, counts, reduction="none").sum(1)
    divergence = -0.5 * (1 + logvar - mean.pow(2) - logvar.exp()).sum(1)
    return (fit + beta * divergence).mean() / GENES


cells = torch.poisson(torch.rand(4096, 1) * torch.rand(GENES) * 5)
loader = DataLoader(TensorDataset(cells), batch_size=128, shuffle=True)
model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
step = 0
for epoch in range(4):
    for (counts,) in loader:
        loss = elbo(model, counts, beta=min(1.0, step / 100))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        step += 1
    print(f"epoch {epoch} elbo {-loss.item():.4f}")
