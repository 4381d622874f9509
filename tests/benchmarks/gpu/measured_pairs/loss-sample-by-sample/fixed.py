"""Learns to match captions with pictures by their features."""

import torch
from torch import nn
from torch.nn import functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
batch_size, width, steps = (32, 2048, 120) if device == "cuda" else (6, 64, 40)

generator = torch.Generator(device).manual_seed(1)
pictures = torch.randn(100 * batch_size, 1024, generator=generator, device=device)
captions = pictures[:, :768] + 0.1 * torch.randn(len(pictures), 768, generator=generator, device=device)


def tower(columns):
    return nn.Sequential(
        nn.Linear(columns, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 256)
    )


model = nn.ModuleDict({"pictures": tower(1024), "captions": tower(768)}).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def matching(a, b):
    scores = F.normalize(a, dim=1) @ F.normalize(b, dim=1).T / 0.07
    return F.cross_entropy(scores, torch.arange(len(a), device=a.device))


for step in range(steps):
    chosen = torch.randint(0, len(pictures), (batch_size,), device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        a, b = model["pictures"](pictures[chosen]), model["captions"](captions[chosen])
    loss = matching(a.float(), b.float())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 39:
        print(f"step {step}: loss {loss.item():.3f}")
