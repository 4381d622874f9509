"""Pictures of pollen grains, drawn from a seed."""

import io

import numpy as np
from PIL import Image


def encoded_grain(kind, rng, side):
    """A PNG of a round grain with as many bumps as its kind says."""
    y, x = np.mgrid[:side, :side] - side / 2 + rng.normal(0, 2, (2, 1, 1))
    angle, radius = np.arctan2(y, x), np.hypot(y, x)
    edge = side * 0.3 * (1 + 0.2 * np.cos((kind + 2) * angle + rng.uniform(0, 6)))
    grey = 200 * (radius < edge) + rng.normal(30, 8, radius.shape)
    picture = np.stack([grey, 0.8 * grey, 0.4 * grey], -1).clip(0, 255).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def make_grains(count, kinds, side, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(kinds, size=count)
    return [(f"{i:06d}.png", encoded_grain(kind, rng, side)) for i, kind in enumerate(labels)], labels.tolist()
