"""A tiny radiance field on a hash-free grid of features; one picture per iteration."""

import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Cameras:
    def __init__(self, views, height, width):
        self.height, self.width, self.focal = height, width, 1.2 * width
        self.poses = []
        for angle in np.linspace(0, 2 * np.pi, views, endpoint=False):
            eye = np.array([3 * np.cos(angle), 3 * np.sin(angle), 0.8])
            z = eye / np.linalg.norm(eye)
            x = np.cross([0, 0, 1.0], z)
            x = x / np.linalg.norm(x)
            self.poses.append(np.stack([x, np.cross(z, x), z, eye], 1))


def get_rays(camera, pose):
    j, i = np.meshgrid(np.arange(camera.height), np.arange(camera.width), indexing="ij")
    local = np.stack(
        [(i - camera.width / 2) / camera.focal, -(j - camera.height / 2) / camera.focal, -np.ones(i.shape)], -1
    )
    rays_d = (local[..., None, :] * pose[:, :3]).sum(-1)
    rays_d = rays_d / np.linalg.norm(rays_d, axis=-1, keepdims=True)
    rays_o = np.broadcast_to(pose[:, 3], rays_d.shape)
    return rays_o.reshape(-1, 3).astype(np.float32), rays_d.reshape(-1, 3).astype(np.float32)


def shade(rays_o, rays_d):
    """Colours of a unit ball lit from above."""
    b = (rays_o * rays_d).sum(-1)
    disc = b**2 - (rays_o**2).sum(-1) + 1
    point = rays_o + (-b - np.sqrt(np.maximum(disc, 0)))[:, None] * rays_d
    return np.where(disc[:, None] > 0, 0.5 + 0.5 * point, 1.0).astype(np.float32)


class GridField(nn.Module):
    def __init__(self, size=24, channels=8):
        super().__init__()
        self.grid = nn.Parameter(torch.randn(1, channels, size, size, size) * 0.1)
        self.net = nn.Sequential(nn.Linear(channels + 3, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 4))

    def forward(self, x, d):
        f = F.grid_sample(self.grid, x.view(1, -1, 1, 1, 3) / 1.5, align_corners=True).view(self.grid.shape[1], -1).T
        out = self.net(torch.cat([f, d.reshape(-1, 3)], 1)).view(*x.shape[:-1], 4)
        return torch.sigmoid(out[..., :3]), F.softplus(out[..., 3])


class Renderer:
    def __init__(self, field, near=1.5, far=4.5, samples=32):
        self.field, self.near, self.far, self.samples = field, near, far, samples

    def __call__(self, rays_o, rays_d):
        t = torch.linspace(self.near, self.far, self.samples) + torch.rand(len(rays_o), 1) * 0.09
        points = rays_o[:, None] + t[..., None] * rays_d[:, None]
        rgb, sigma = self.field(points, rays_d[:, None].expand_as(points))
        alpha = 1 - torch.exp(-sigma * (self.far - self.near) / self.samples)
        through = torch.cumprod(torch.cat([torch.ones(len(t), 1), 1 - alpha[:, :-1] + 1e-7], 1), 1)
        weights = alpha * through
        return (weights[..., None] * rgb).sum(1) + 1 - weights.sum(1, keepdim=True)


class PixelSampler:
    def __init__(self, cameras, count, seed):
        self.cameras, self.count, self.rng = cameras, count, np.random.default_rng(seed)
        self.rays = [get_rays(cameras, pose) for pose in cameras.poses]
        self.images = [shade(*get_rays(cameras, pose)) for pose in cameras.poses]

    def sample(self):
        view = self.rng.integers(len(self.images))
        rays_o, rays_d = self.rays[view]
        pick = self.rng.integers(0, len(rays_d), self.count)
        return [torch.from_numpy(part[pick]) for part in (rays_o, rays_d, self.images[view])]


class Pipeline:
    def __init__(self, iterations=180):
        self.iterations = iterations
        self.sampler = PixelSampler(Cameras(10, 200, 200), 128, seed=0)
        self.renderer = Renderer(GridField())
        self.optimizer = torch.optim.Adam(self.renderer.field.parameters(), lr=5e-3)

    def train(self):
        for step in range(1, self.iterations + 1):
            rays_o, rays_d, colour = self.sampler.sample()
            loss = F.mse_loss(self.renderer(rays_o, rays_d), colour)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if step % 45 == 0:
                print(f"{step} ({100 * step / self.iterations:.0f}%) PSNR {-10 * np.log10(loss.item()):.2f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    pipeline = Pipeline()
    pipeline.train()
    with tempfile.TemporaryFile() as file:
        torch.save(pipeline.renderer.field.state_dict(), file)
