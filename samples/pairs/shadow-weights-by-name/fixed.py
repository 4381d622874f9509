"""Diffusion of handwriting strokes: a residual network predicts the noise; samples come from averaged weights."""

import math
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import nn

STEPS, POINTS, WIDTH = 200, 24, 192


class MovingAverage:
    """Shadow weights by name, which can take the place of the model's for a while."""

    def __init__(self, model, decay=0.995):
        self.model, self.decay = model, decay
        self.shadow = {name: weight.detach().clone() for name, weight in model.named_parameters()}

    @torch.no_grad()
    def update(self):
        weights = [weight.data for weight in self.model.parameters()]
        torch._foreach_lerp_(list(self.shadow.values()), weights, 1.0 - self.decay)

    @contextmanager
    def applied(self):
        kept = {name: weight.detach().clone() for name, weight in self.model.named_parameters()}
        self._load(self.shadow)
        yield self.model
        self._load(kept)

    @torch.no_grad()
    def _load(self, weights):
        for name, weight in self.model.named_parameters():
            weight.copy_(weights[name])


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(width), nn.Linear(width, width)
        self.time, self.outer = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x, time):
        return x + self.outer(F.silu(self.inner(self.norm(x)) + self.time(time)))


class Denoiser(nn.Module):
    def __init__(self, blocks=16):
        super().__init__()
        self.entry, self.exit = nn.Linear(2 * POINTS, WIDTH), nn.Linear(WIDTH, 2 * POINTS)
        self.blocks = nn.ModuleList(Residual(WIDTH) for _ in range(blocks))
        self.register_buffer("pace", torch.exp(-math.log(1000) * torch.arange(WIDTH // 2) / (WIDTH // 2)))

    def forward(self, x, t):
        angle = t[:, None] * self.pace
        time = torch.cat([angle.sin(), angle.cos()], 1)
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            x = self.entry(x)
            for block in self.blocks:
                x = block(x, time)
            return self.exit(x).float()


class Diffusion:
    def __init__(self, model, device):
        self.model, self.device = model, device
        self.betas = torch.linspace(1e-4, 0.04, STEPS, device=device)
        self.kept = torch.cumprod(1 - self.betas, 0)

    def loss(self, strokes):
        t = torch.randint(0, STEPS, (len(strokes),), device=self.device)
        kept, noise = self.kept[t, None], torch.randn_like(strokes)
        return F.mse_loss(self.model(kept.sqrt() * strokes + (1 - kept).sqrt() * noise, t), noise)

    @torch.no_grad()
    def sample(self, count):
        x = torch.randn(count, 2 * POINTS, device=self.device)
        for t in reversed(range(0, STEPS, 4)):
            noise = self.model(x, torch.full((count,), t, device=self.device))
            clean = ((x - (1 - self.kept[t]).sqrt() * noise) / self.kept[t].sqrt()).clamp(-2, 2)
            before = self.kept[max(t - 4, 0)]
            x = before.sqrt() * clean + (1 - before).sqrt() * noise
        return x


def main():
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    bend = torch.randn(4096, 2, 1).cumsum(1) * torch.linspace(0, 3, POINTS)
    strokes = torch.cat([bend.sin(), bend.cos()], 1)[:, :2].flatten(1).to(device)
    model = Denoiser().to(device)
    diffusion, average = Diffusion(model, device), MovingAverage(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for epoch in range(2):
        for chosen in torch.randperm(len(strokes), device=device).split(64):
            loss = diffusion.loss(strokes[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            average.update()
        with average.applied():
            spread = diffusion.sample(32).std().item()
        print(f"epoch {epoch}: loss {loss.item():.3f}, samples spread by {spread:.3f}")


if __name__ == "__main__":
    main()
