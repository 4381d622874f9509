"""Rays through the pixels of one view, points along them, and how they become a colour."""

import torch
import torch.nn.functional as F


def make_rays(count, seed):
    """Origins, directions and target colours of rays."""
    gen = torch.Generator().manual_seed(seed)
    origins = torch.randn(count, 3, generator=gen) * 0.1 + torch.tensor([0.0, 0.0, 3.0])
    directions = F.normalize(torch.randn(count, 3, generator=gen) * 0.3 - torch.tensor([0.0, 0.0, 1.0]), dim=-1)
    return origins, directions, torch.rand(count, 3, generator=gen)


def encode(x, frequencies=6):
    """Sines and cosines of x."""
    bands = 2.0 ** torch.arange(frequencies)
    angles = (x[..., None] * bands).flatten(-2)
    return torch.cat([x, angles.sin(), angles.cos()], dim=-1)


def composite(raw, depths):
    """Colour of each ray from what the network says about its points."""
    gaps = torch.cat([depths[:, 1:] - depths[:, :-1], torch.full_like(depths[:, :1], 1e3)], dim=-1)
    alpha = 1.0 - torch.exp(-F.relu(raw[..., 3]) * gaps)
    clear = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1.0 - alpha + 1e-10], dim=-1), dim=-1)[:, :-1]
    return ((alpha * clear)[..., None] * torch.sigmoid(raw[..., :3])).sum(dim=1)
