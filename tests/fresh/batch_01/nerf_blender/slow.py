"""A small radiance field: coarse and fine network, positional encoding, volume rendering."""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.autograd.set_detect_anomaly(True)
to8b = lambda x: (255 * np.clip(x, 0, 1)).astype(np.uint8)  # noqa: E731
img2mse = lambda x, y: torch.mean((x - y) ** 2)  # noqa: E731


class Embedder:
    def __init__(self, num_freqs):
        self.bands = 2.0 ** torch.linspace(0.0, num_freqs - 1, num_freqs)
        self.out_dim = 3 + 3 * 2 * num_freqs

    def embed(self, x):
        parts = [x]
        for freq in self.bands:
            parts += [torch.sin(x * freq), torch.cos(x * freq)]
        return torch.cat(parts, -1)


class NeRF(nn.Module):
    def __init__(self, depth, width, in_ch, in_views, skips=(2,)):
        super().__init__()
        self.skips = skips
        self.pts = nn.ModuleList(
            [nn.Linear(in_ch, width)]
            + [nn.Linear(width + in_ch if i in skips else width, width) for i in range(depth - 1)]
        )
        self.alpha = nn.Linear(width, 1)
        self.feature = nn.Linear(width, width)
        self.view = nn.Linear(width + in_views, width // 2)
        self.rgb = nn.Linear(width // 2, 3)

    def forward(self, pts, views):
        h = pts
        for i, layer in enumerate(self.pts):
            h = F.relu(layer(h))
            if i in self.skips:
                h = torch.cat([pts, h], -1)
        alpha = self.alpha(h)
        h = F.relu(self.view(torch.cat([self.feature(h), views], -1)))
        return torch.cat([self.rgb(h), alpha], -1)


def raw2outputs(raw, z, rays_d):
    dists = z[..., 1:] - z[..., :-1]
    dists = torch.cat([dists, torch.full_like(dists[..., :1], 1e10)], -1) * rays_d.norm(dim=-1, keepdim=True)
    alpha = 1 - torch.exp(-F.relu(raw[..., 3]) * dists)
    trans = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], -1), -1)[:, :-1]
    weights = alpha * trans
    return (weights[..., None] * torch.sigmoid(raw[..., :3])).sum(-2), weights


def sample_pdf(bins, weights, n):
    pdf = (weights + 1e-5) / (weights + 1e-5).sum(-1, keepdim=True)
    cdf = torch.cat([torch.zeros_like(pdf[..., :1]), torch.cumsum(pdf, -1)], -1)
    u = torch.rand(cdf.shape[0], n)
    inds = torch.searchsorted(cdf.contiguous(), u, right=True)
    below, above = (inds - 1).clamp(min=0), inds.clamp(max=cdf.shape[-1] - 1)
    c0, c1 = cdf.gather(1, below), cdf.gather(1, above)
    b0, b1 = bins.gather(1, below.clamp(max=bins.shape[-1] - 1)), bins.gather(1, above.clamp(max=bins.shape[-1] - 1))
    denom = torch.where(c1 - c0 < 1e-5, torch.ones_like(c0), c1 - c0)
    return b0 + (u - c0) / denom * (b1 - b0)


def scene(views, size, rng):
    """Rays and colours of a coloured ball seen from a circle of cameras."""
    rays, colours = [], []
    for angle in np.linspace(0, 2 * np.pi, views, endpoint=False):
        eye = np.array([4 * np.cos(angle), 4 * np.sin(angle), 0.5])
        forward = -eye / np.linalg.norm(eye)
        right = np.cross(forward, [0, 0, 1.0])
        up = np.cross(right, forward)
        u, v = np.meshgrid(np.linspace(-0.4, 0.4, size), np.linspace(-0.4, 0.4, size))
        d = forward + u[..., None] * right - v[..., None] * up
        b = (d * eye).sum(-1)
        disc = b**2 - (d**2).sum(-1) * (eye @ eye - 1)
        hit = eye - d * ((b + np.sqrt(np.maximum(disc, 0))) / (d**2).sum(-1))[..., None]
        rays.append(np.concatenate([np.broadcast_to(eye, d.shape), d], -1).reshape(-1, 6))
        colours.append(np.where(disc[..., None] > 0, 0.5 + 0.5 * hit, 1.0).reshape(-1, 3))
    order = rng.permutation(views * size * size)
    return [torch.tensor(np.concatenate(x)[order], dtype=torch.float32) for x in (rays, colours)]


def render(rays, nets, embed, embed_dir, n_coarse, n_fine):
    o, d = rays[:, :3], rays[:, 3:]
    views = embed_dir.embed(F.normalize(d, dim=-1))
    z = torch.linspace(2.0, 6.0, n_coarse).expand(len(rays), n_coarse)
    z = z + torch.rand_like(z) * 4.0 / n_coarse

    def query(net, z):
        pts = o[:, None] + d[:, None] * z[..., None]
        return raw2outputs(net(embed.embed(pts), views[:, None].expand(-1, z.shape[1], -1)), z, d)

    rgb0, weights = query(nets[0], z)
    extra = sample_pdf(0.5 * (z[:, 1:] + z[:, :-1]), weights[:, 1:-1].detach(), n_fine)
    rgb, _ = query(nets[1], torch.sort(torch.cat([z, extra], -1), -1).values)
    return rgb, rgb0


def train():
    parser = argparse.ArgumentParser()
    parser.add_argument("--n-rand", type=int, default=96)
    parser.add_argument("--iters", type=int, default=260)
    parser.add_argument("--i-print", type=int, default=50)
    parser.add_argument("--i-weights", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    rays, colours = scene(8, 40, np.random.default_rng(0))
    embed, embed_dir = Embedder(8), Embedder(4)
    nets = nn.ModuleList(NeRF(4, 64, embed.out_dim, embed_dir.out_dim) for _ in range(2))
    optimizer = torch.optim.Adam(nets.parameters(), lr=5e-4, betas=(0.9, 0.999))
    with tempfile.TemporaryDirectory() as logs:
        i_batch = 0
        for i in range(1, args.iters + 1):
            if i_batch + args.n_rand > len(rays):
                order = torch.randperm(len(rays))
                rays, colours, i_batch = rays[order], colours[order], 0
            batch, target = rays[i_batch : i_batch + args.n_rand], colours[i_batch : i_batch + args.n_rand]
            i_batch += args.n_rand
            rgb, rgb0 = render(batch, nets, embed, embed_dir, 16, 16)
            optimizer.zero_grad()
            loss = img2mse(rgb, target) + img2mse(rgb0, target)
            loss.backward()
            optimizer.step()
            for group in optimizer.param_groups:
                group["lr"] = 5e-4 * 0.1 ** (i / 2000)
            if i % args.i_print == 0:
                print(f"[TRAIN] Iter: {i} Loss: {loss.item():.4f} PSNR: {-10 * torch.log10(loss.detach()).item():.2f}")
            if i % args.i_weights == 0:
                torch.save({"step": i, "nets": nets.state_dict()}, Path(logs) / f"{i:06d}.tar")


if __name__ == "__main__":
    train()
