"""A small denoising network trained as diffusion models are, with an averaged copy kept by one fused call."""

import copy

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

pictures = torch.randn(1024, 3, 32, 32, device=device).to(memory_format=torch.channels_last)


class Denoiser(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.down = nn.Conv2d(4, width, 3, stride=2, padding=1)
        self.middle = nn.Conv2d(width, width, 3, padding=1)
        self.up = nn.ConvTranspose2d(width, 3, 4, stride=2, padding=1)

    def forward(self, noisy, level):
        x = torch.cat([noisy, level.expand(-1, 1, 32, 32)], 1)
        x = nn.functional.silu(self.down(x))
        x = x + nn.functional.silu(self.middle(x))
        return self.up(x)


model = Denoiser().to(device, memory_format=torch.channels_last)
averaged = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

for epoch in range(4):
    for clean in pictures.split(32):
        noise = torch.randn_like(clean)
        level = torch.rand(len(clean), 1, 1, 1, device=device)
        with torch.autocast(device, dtype=torch.bfloat16):
            guess = model(clean * (1 - level) + noise * level, level)
        loss = nn.functional.mse_loss(guess.float(), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(averaged.parameters()), list(model.parameters()), 0.01)
    print(f"epoch {epoch}: loss {loss.item():.4f}")
