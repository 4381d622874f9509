"""Twenty-one joints of a hand as heatmaps: a small encoder and decoder, targets painted for a whole batch at once."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

JOINTS, SIZE, STRIDE = 21, 64, 4


def conv(inside, outside, stride=1):
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(inplace=True)
    )


class HandNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.down = nn.Sequential(
            conv(1, width, 2), conv(width, 2 * width, 2), conv(2 * width, 4 * width, 2), conv(4 * width, 4 * width)
        )
        self.up = nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1)
        self.head = nn.Sequential(conv(2 * width, 2 * width), nn.Conv2d(2 * width, JOINTS, 1))

    def forward(self, images):
        return self.head(F.relu(self.up(self.down(images)), inplace=True))


class HeatmapTarget(nn.Module):
    """A Gaussian around each joint is the product of one along x and one along y."""

    def __init__(self, sigma=1.5):
        super().__init__()
        self.register_buffer("axis", torch.arange(SIZE // STRIDE, dtype=torch.float32))
        self.sigma = sigma

    def forward(self, joints):
        bells = torch.exp(-0.5 * ((self.axis - joints.unsqueeze(-1) / STRIDE) / self.sigma).square())
        return bells[:, :, 1, :, None] * bells[:, :, 0, None, :]


def make_hands(count, seed):
    """Fingers are straight rays of four joints from a palm; each joint is a bright blob in the picture."""
    g = torch.Generator().manual_seed(seed)
    palm = SIZE / 2 + 6 * torch.randn(count, 1, 1, 2, generator=g)
    turn = 6.28 * torch.rand(count, 1, 1, generator=g)
    angle = turn + torch.linspace(-1.0, 1.0, 5)[None, :, None] + 0.1 * torch.randn(count, 5, 1, generator=g)
    reach = torch.linspace(8, 24, 4) * (0.7 + 0.3 * torch.rand(count, 5, 1, generator=g))
    tips = palm + torch.stack([reach * angle.cos(), reach * angle.sin()], dim=-1)
    joints = torch.cat([palm.flatten(1, 2), tips.flatten(1, 2)], dim=1).clamp(1, SIZE - 2)
    axis = torch.arange(SIZE, dtype=torch.float32)
    bells = torch.exp(-0.5 * ((axis - joints.unsqueeze(-1)) / 2).square())
    images = torch.einsum("njy,njx->nyx", bells[:, :, 1], bells[:, :, 0]).unsqueeze(1)
    return images + 0.1 * torch.randn(images.shape, generator=g), joints


@torch.inference_mode()
def pck(model, images, joints, batch_size, within=4.0):
    """Share of joints that are found within some pixels."""
    model.eval()
    found = torch.zeros(())
    for batch, truth in zip(images.split(batch_size), joints.split(batch_size)):
        best = model(batch).flatten(2).argmax(2)
        side = SIZE // STRIDE
        guess = STRIDE * torch.stack([best % side, best // side], dim=-1).float()
        found += ((guess - truth).norm(dim=-1) < within).sum()
    return (found / joints[:, :, 0].numel()).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hands", type=int, default=2560)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    torch.manual_seed(21)

    images, joints = make_hands(args.hands, seed=1)
    val_images, val_joints = make_hands(256, seed=2)
    model, target = HandNet().to(memory_format=torch.channels_last), HeatmapTarget()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    for epoch in range(args.epochs):
        model.train()
        total = torch.zeros(())
        batches = torch.randperm(args.hands).split(args.batch_size)
        for rows in batches:
            batch = images[rows].contiguous(memory_format=torch.channels_last)
            loss = JOINTS * F.mse_loss(model(batch), target(joints[rows]))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        score = pck(model, val_images, val_joints, 2 * args.batch_size)
        print(f"epoch {epoch} loss {total.item() / len(batches):.4f} pck {score:.3f}")


if __name__ == "__main__":
    main()
