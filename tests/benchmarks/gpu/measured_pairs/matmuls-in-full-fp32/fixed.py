"""A wide network that forecasts readings of sensors, in fp32."""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
batch_size, columns, width, steps = (4096, 512, 2048, 120) if device == "cuda" else (64, 32, 64, 40)

generator = torch.Generator(device).manual_seed(1)
readings = torch.randn(16 * batch_size, columns, generator=generator, device=device)
layers = [nn.Linear(columns, width), nn.ReLU()]
for _ in range(4):
    layers += [nn.Linear(width, width), nn.ReLU()]
model = nn.Sequential(*layers, nn.Linear(width, columns)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

for step in range(steps):
    rows = torch.randint(0, len(readings) - 1, (batch_size,), device=device)
    now, later = readings[rows], readings[rows + 1]
    forecast = model(now)
    loss = nn.functional.mse_loss(forecast, later)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 39:
        print(f"step {step}: loss {loss.item():.3f}")
