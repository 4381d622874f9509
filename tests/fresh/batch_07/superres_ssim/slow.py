"""Single-image super-resolution by two: EDSR-like residual blocks and a pixel shuffle."""

import argparse
import math

import torch
from torch import nn
from torch.nn import functional as F


class Meter:
    """Keeps an average."""

    def __init__(self):
        self.total, self.count = 0.0, 0

    def update(self, value):
        self.total += value
        self.count += 1

    @property
    def average(self):
        return self.total / max(self.count, 1)


class ResidualBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(width, width, 3, padding=1)
        )

    def forward(self, x):
        return x + 0.1 * self.body(x)


class EDSR(nn.Module):
    def __init__(self, width=32, blocks=3, scale=2):
        super().__init__()
        self.head = nn.Conv2d(3, width, 3, padding=1)
        self.body = nn.Sequential(*(ResidualBlock(width) for _ in range(blocks)))
        self.tail = nn.Sequential(nn.Conv2d(width, 3 * scale**2, 3, padding=1), nn.PixelShuffle(scale))

    def forward(self, x):
        x = self.head(x)
        return self.tail(x + self.body(x))


def gaussian_window(size, sigma, channels):
    x = torch.arange(size) - size // 2
    g = torch.exp(-(x**2) / (2 * sigma**2))
    g = g / g.sum()
    return (g[:, None] * g).expand(channels, 1, size, size).contiguous()


def calculate_psnr(a, b):
    return 10 * math.log10(1.0 / F.mse_loss(a, b).item())


def calculate_ssim(a, b, window):
    c1, c2, groups = 0.01**2, 0.03**2, a.shape[1]
    mu_a, mu_b = F.conv2d(a, window, groups=groups), F.conv2d(b, window, groups=groups)
    var_a = F.conv2d(a * a, window, groups=groups) - mu_a**2
    var_b = F.conv2d(b * b, window, groups=groups) - mu_b**2
    cov = F.conv2d(a * b, window, groups=groups) - mu_a * mu_b
    ssim = (2 * mu_a * mu_b + c1) * (2 * cov + c2) / ((mu_a**2 + mu_b**2 + c1) * (var_a + var_b + c2))
    return ssim.mean().item()


def make_images(count, size, generator):
    """Smooth colour fields with sharp edges."""
    coarse = torch.rand(count, 3, 6, 6, generator=generator)
    images = F.interpolate(coarse, size=(size, size), mode="bicubic", align_corners=False)
    edges = F.interpolate((coarse[:, :1] > 0.5).float(), size=(size, size))
    return (0.7 * images + 0.3 * edges).clamp(0, 1)


class Patches:
    def __init__(self, images, patch, batch_size, generator):
        self.images, self.patch, self.batch_size, self.generator = images, patch, batch_size, generator

    def __iter__(self):
        limit = self.images.shape[-1] - self.patch
        while True:
            picks = torch.randint(len(self.images), (self.batch_size,), generator=self.generator)
            y, x = torch.randint(limit, (2,), generator=self.generator).tolist()
            hr = self.images[picks, :, y : y + self.patch, x : x + self.patch]
            yield F.avg_pool2d(hr, 2), hr


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=280)
    parser.add_argument("--patch", type=int, default=80)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--print-freq", type=int, default=20)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()

    torch.manual_seed(123)
    generator = torch.Generator().manual_seed(123)
    patches = Patches(make_images(60, 128, generator), args.patch, args.batch_size, generator)
    model = EDSR()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    window = gaussian_window(11, 1.5, 3)
    psnr, ssim = Meter(), Meter()
    for iteration, (lr_image, hr_image) in enumerate(patches, 1):
        sr_image = model(lr_image)
        loss = F.l1_loss(sr_image, hr_image)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        with torch.no_grad():
            output = sr_image.clamp(0, 1)
            psnr.update(calculate_psnr(output, hr_image))
            ssim.update(calculate_ssim(output, hr_image, window))
        if iteration % args.print_freq == 0:
            print(f"{iteration}: l1 {loss.item():.4f} psnr {psnr.average:.2f} ssim {ssim.average:.4f}")
            psnr, ssim = Meter(), Meter()
        if iteration == args.iterations:
            break


if __name__ == "__main__":
    main()
