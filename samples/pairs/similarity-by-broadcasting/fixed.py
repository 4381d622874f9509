"""What a wrist does, from an accelerometer without labels: two views of a stretch of time should agree (SimCLR)."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
LENGTH, BATCH, TEMPERATURE = 128, 64, 0.2


class Encoder(nn.Module):
    def __init__(self, width=64, out=64):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(3, width, 9, stride=4),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Conv1d(width, width, 5, stride=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
        )
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, out))

    def forward(self, x):
        return self.head(self.features(x))


class NTXent(nn.Module):
    """The normalised, temperature-scaled cross entropy over all pairs of a batch."""

    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature

    def similarity(self, z):
        """Cosines of all pairs: (count, count)."""
        z = F.normalize(z, dim=1)
        return z @ z.T

    def forward(self, first, second):
        z = torch.cat([first, second])
        scores = self.similarity(z) / self.temperature
        scores = scores.masked_fill(torch.eye(len(z), dtype=torch.bool, device=z.device), float("-inf"))
        partner = torch.arange(len(z), device=z.device).roll(len(first))
        return F.cross_entropy(scores, partner)


def view(x):
    """Turned about a random axis, louder or softer, and noisier."""
    turn = torch.linalg.qr(torch.randn(len(x), 3, 3, device=x.device)).Q
    loud = 0.8 + 0.4 * torch.rand(len(x), 1, 1, device=x.device)
    return loud * turn @ x + 0.05 * torch.randn_like(x)


def movements(count):
    pitch = torch.randint(1, 12, (count, 3, 1))
    axis = torch.linspace(0, 6.283, LENGTH)
    return (pitch * axis + 6.283 * torch.rand(count, 3, 1)).sin().to(device)


data = movements(4800)
encoder, criterion = Encoder().to(device), NTXent(TEMPERATURE)
optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-3, weight_decay=1e-2, fused=True)
for epoch in range(4):
    for chosen in torch.randperm(len(data), device=device).split(BATCH):
        x = data[chosen]
        loss = criterion(encoder(view(x)), encoder(view(x)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.4f}")
