"""Contrastive learning of pictures: two noisy views of each, a projection head, and the NT-Xent loss."""

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)


class Encoder(nn.Module):
    def __init__(self, patch=8, width=256, layers=3):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        block = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 64))

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        return F.normalize(self.head(self.blocks(x).mean(1)), dim=1)


def views(pictures):
    shift = torch.randint(0, 8, (2,)).tolist()
    moved = pictures.roll(shift, (2, 3))
    return moved + 0.1 * torch.randn_like(moved)


def nt_xent(a, b, temperature=0.2):
    z = torch.cat([a, b]).float()
    scores = (z @ z.T / temperature).fill_diagonal_(-1e4)
    return F.cross_entropy(scores, torch.arange(len(z), device=z.device).roll(len(a)))


pictures = torch.rand(512, 3, 32, 32, device=device)
model = Encoder().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
for epoch in range(6):
    for chosen in torch.randperm(512, device=device).split(32):
        with torch.autocast(device, dtype=torch.bfloat16):
            a, b = model(views(pictures[chosen])), model(views(pictures[chosen]))
        loss = nt_xent(a, b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.4f}")
