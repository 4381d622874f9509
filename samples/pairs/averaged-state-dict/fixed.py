"""A diffusion model of points in the plane, with an exponential moving average of its weights."""

import math

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(1)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x, time):
        return x + self.down(nn.functional.silu(self.up(self.norm(x + time))))


class Denoiser(nn.Module):
    def __init__(self, width=192, depth=8):
        super().__init__()
        self.enter, self.leave = nn.Linear(2, width), nn.Linear(width, 2)
        self.blocks = nn.ModuleList([Residual(width) for _ in range(depth)])
        self.register_buffer("frequencies", torch.exp(torch.linspace(0, 6, width // 2)))

    def forward(self, x, t):
        angle = t[:, None] * self.frequencies
        time = torch.cat([angle.sin(), angle.cos()], 1)
        x = self.enter(x)
        for block in self.blocks:
            x = block(x, time)
        return self.leave(x)


class Trainer:
    def __init__(self, model, steps, decay=0.999):
        self.model, self.decay = model, decay
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=True)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, steps)
        self.average = {name: value.clone() for name, value in model.named_parameters()}
        self.average = {name: value.detach() for name, value in self.average.items()}

    @torch.no_grad()
    def update_average(self):
        current = [value.detach() for value in self.model.parameters()]
        torch._foreach_lerp_(list(self.average.values()), current, 1 - self.decay)

    def step(self, clean):
        t = torch.rand(len(clean), device=clean.device)
        noise = torch.randn_like(clean)
        signal = torch.cos(t * math.pi / 2)[:, None]
        noisy = signal * clean + (1 - signal**2).sqrt() * noise
        loss = nn.functional.mse_loss(self.model(noisy, t), noise)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.update_average()
        return loss.detach()


trainer = Trainer(Denoiser().to(device), steps=300)
for step in range(300):
    angle = torch.rand(64, device=device) * 12
    loss = trainer.step(torch.stack([angle.cos() * angle, angle.sin() * angle], 1) / 12)
    if step % 100 == 0:
        print(f"{step}: {loss.item():.4f}")
