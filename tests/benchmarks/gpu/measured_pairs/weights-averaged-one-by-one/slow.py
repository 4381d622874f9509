"""A denoiser with a moving average of its weights."""

import copy

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
batch_size, side, channels, depth, steps = (128, 32, 128, 12, 120) if device == "cuda" else (4, 8, 16, 3, 40)

generator = torch.Generator(device).manual_seed(1)
pictures = torch.rand(16 * batch_size, 3, side, side, generator=generator, device=device)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(8, channels)
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, x):
        return x + self.second(nn.functional.silu(self.first(self.norm(x))))


blocks = [Block() for _ in range(depth)]
model = nn.Sequential(nn.Conv2d(3, channels, 3, padding=1), *blocks, nn.Conv2d(channels, 3, 3, padding=1))
model = model.to(device, memory_format=torch.channels_last)
averaged = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

for step in range(steps):
    clean = pictures[torch.randint(0, len(pictures), (batch_size,), device=device)]
    clean = clean.to(memory_format=torch.channels_last)
    noise = torch.randn_like(clean)
    with torch.autocast(device, dtype=torch.bfloat16):
        guess = model(clean + 0.5 * noise)
    loss = nn.functional.mse_loss(guess.float(), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for average, current in zip(averaged.parameters(), model.parameters()):
            average.copy_(0.999 * average + 0.001 * current)
    if step % 40 == 39:
        print(f"step {step}: loss {loss.item():.3f}")
