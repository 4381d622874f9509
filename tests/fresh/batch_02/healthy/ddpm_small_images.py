"""Denoising diffusion of small images with a moving average of the weights."""

import copy
import itertools
import math
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

STEPS, BATCH, SIZE, TIMESTEPS = 260, 8, 16, 200


class ModelEMA:
    def __init__(self, model, decay=0.999, tau=100):
        self.module = copy.deepcopy(model).eval()
        self.updates, self.decay, self.tau = 0, decay, tau
        for p in self.module.parameters():
            p.requires_grad_(False)

    def update(self, model):
        self.updates += 1
        d = self.decay * (1 - math.exp(-self.updates / self.tau))
        msd = model.state_dict()
        pairs = [(v, msd[k].detach()) for k, v in self.module.state_dict().items() if v.dtype.is_floating_point]
        torch._foreach_lerp_([v for v, _ in pairs], [m for _, m in pairs], 1 - d)


def timestep_embedding(t, dim):
    freqs = torch.exp(-math.log(10000) * torch.arange(dim // 2) / (dim // 2))
    args = t[:, None].float() * freqs[None]
    return torch.cat([torch.cos(args), torch.sin(args)], -1)


class ResBlock(nn.Module):
    def __init__(self, channels, out, emb):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, channels), nn.Conv2d(channels, out, 3, padding=1)
        self.emb = nn.Linear(emb, out)
        self.norm2, self.conv2 = nn.GroupNorm(4, out), nn.Conv2d(out, out, 3, padding=1)
        self.skip = nn.Conv2d(channels, out, 1) if channels != out else nn.Identity()

    def forward(self, x, emb):
        h = self.conv1(F.silu(self.norm1(x))) + self.emb(emb)[:, :, None, None]
        return self.conv2(F.silu(self.norm2(h))) + self.skip(x)


class UNet(nn.Module):
    def __init__(self, width=16, emb=64):
        super().__init__()
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, emb), nn.SiLU(), nn.Linear(emb, emb))
        self.inp = nn.Conv2d(1, width, 3, padding=1)
        sizes = [width, width, 2 * width, 2 * width]
        self.down = nn.ModuleList(ResBlock(a, b, emb) for a, b in itertools.pairwise(sizes))
        self.mid = nn.ModuleList(ResBlock(2 * width, 2 * width, emb) for _ in range(4))
        self.up = nn.ModuleList(ResBlock(2 * b, a, emb) for a, b in reversed(list(itertools.pairwise(sizes))))
        self.out = nn.Sequential(nn.GroupNorm(4, width), nn.SiLU(), nn.Conv2d(width, 1, 3, padding=1))

    def forward(self, x, t):
        emb = self.time(timestep_embedding(t, self.width))
        h, kept = self.inp(x), []
        for block in self.down:
            h = block(h, emb)
            kept.append(h)
            h = F.avg_pool2d(h, 2)
        for block in self.mid:
            h = block(h, emb)
        for block in self.up:
            h = F.interpolate(h, scale_factor=2, mode="nearest")
            h = block(torch.cat([h, kept.pop()], 1), emb)
        return self.out(h)


class GaussianDiffusion:
    def __init__(self, timesteps):
        s = torch.linspace(0, 1, timesteps + 1)
        bar = torch.cos((s + 0.008) / 1.008 * math.pi / 2) ** 2
        self.alphas_bar = (bar / bar[0]).clamp(1e-4, 0.9999)[1:]
        self.timesteps = timesteps

    def loss(self, model, x0):
        t = torch.randint(0, self.timesteps, (len(x0),))
        noise = torch.randn_like(x0)
        a = self.alphas_bar[t][:, None, None, None]
        return F.mse_loss(model(a.sqrt() * x0 + (1 - a).sqrt() * noise, t), noise)

    @torch.no_grad()
    def sample(self, model, n):
        x = torch.randn(n, 1, SIZE, SIZE)
        for i in reversed(range(0, self.timesteps, 20)):
            a = self.alphas_bar[i]
            eps = model(x, torch.full((n,), i))
            x0 = ((x - (1 - a).sqrt() * eps) / a.sqrt()).clamp(-1, 1)
            prev = self.alphas_bar[i - 20] if i >= 20 else torch.tensor(0.9999)
            x = prev.sqrt() * x0 + (1 - prev).sqrt() * eps
        return x


def blobs(n):
    g = torch.Generator().manual_seed(0)
    centre = torch.rand(n, 2, 1, 1, generator=g) * SIZE
    ys, xs = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    dist = (xs - centre[:, 0]) ** 2 + (ys - centre[:, 1]) ** 2
    return (2 * torch.exp(-dist / 12) - 1)[:, None]


if __name__ == "__main__":
    torch.manual_seed(0)
    data, diffusion, model = blobs(2048), GaussianDiffusion(TIMESTEPS), UNet()
    ema = ModelEMA(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=True)
    with tempfile.TemporaryDirectory() as results:
        for step in range(STEPS):
            x0 = data[torch.randint(0, len(data), (BATCH,))]
            optimizer.zero_grad(set_to_none=True)
            loss = diffusion.loss(model, x0)
            loss.backward()
            optimizer.step()
            ema.update(model)
            if (step + 1) % 50 == 0:
                print(f"step {step + 1} loss {loss.item():.4f}")
        samples = diffusion.sample(ema.module, 4)
        torch.save({"ema": ema.module.state_dict(), "samples": samples}, f"{results}/model.pt")
