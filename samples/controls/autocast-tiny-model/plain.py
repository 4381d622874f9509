"""A regression with few weights and many elementwise operations: there is no large matrix product to speed up."""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

x = torch.randn(256_000, 16, device=device)
y = x.sin().sum(1, keepdim=True)
model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

for epoch in range(4):
    for inputs, targets in zip(x.split(8000), y.split(8000), strict=True):
        with torch.autocast(device, dtype=torch.bfloat16, enabled=False):
            guess = model(inputs)
        loss = nn.functional.mse_loss(guess.float(), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.4f}")
