"""A variational autoencoder with large batches of pictures that live on the device."""

import torch
from torch import nn
from torch.nn import functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

digits = torch.rand(25_600, 784, device=device)


class VAE(nn.Module):
    def __init__(self, hidden=400, latent=20):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(784, hidden), nn.ReLU(), nn.Linear(hidden, 2 * latent))
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, 784))

    def forward(self, x):
        mean, log_variance = self.encoder(x).chunk(2, dim=1)
        z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        return self.decoder(z), mean, log_variance


model = VAE().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

for epoch in range(2):
    for x in digits[torch.randperm(len(digits), device=device)].split(512):
        with torch.autocast(device, dtype=torch.bfloat16):
            logits, mean, log_variance = model(x)
        reconstruction = F.binary_cross_entropy_with_logits(logits.float(), x, reduction="sum")
        mean, log_variance = mean.float(), log_variance.float()
        divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum()
        loss = (reconstruction + divergence) / len(x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.2f}")
