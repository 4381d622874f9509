"""Compression of a picture-to-picture generator: a supernet whose layers run at a random width."""

import argparse
import random
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from board import Board
from torch import nn


class SlimConv(nn.Conv2d):
    """Uses the first channels only."""

    def forward(self, x, channels):
        return F.conv2d(x, self.weight[:channels, : x.shape[1]], self.bias[:channels], self.stride, self.padding)


class Supernet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = SlimConv(3, width, 3, stride=2, padding=1)
        self.inner = nn.ModuleList(SlimConv(width, width, 3, padding=1) for _ in range(4))
        self.last = SlimConv(width, 12, 3, padding=1)

    def forward(self, x, channels):
        h = F.relu(self.first(x, channels))
        for conv in self.inner:
            h = h + F.relu(conv(h, channels))
        return torch.tanh(F.pixel_shuffle(self.last(h, 12), 2))


class Critic(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(6, 16, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(16, 1, 4, 2, 1))


class Distiller:
    def __init__(self, opt):
        self.student, self.critic = Supernet(opt.width), Critic()
        self.widths = [opt.width // 4, opt.width // 2, opt.width]
        self.teacher = nn.Sequential(
            nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 3, 3, padding=1), nn.Tanh()
        )
        self.teacher.requires_grad_(False)
        self.opt_g = torch.optim.Adam(self.student.parameters(), lr=opt.lr, betas=(0.5, 0.999))
        self.opt_d = torch.optim.Adam(self.critic.parameters(), lr=opt.lr, betas=(0.5, 0.999))

    def optimize_parameters(self, x):
        wanted = self.teacher(x)
        fake = self.student(x, random.choice(self.widths))
        real_score, fake_score = self.critic(torch.cat([x, wanted], 1)), self.critic(torch.cat([x, fake.detach()], 1))
        loss_real, loss_fake = F.relu(1 - real_score).mean(), F.relu(1 + fake_score).mean()
        loss_d = loss_real + loss_fake
        self.opt_d.zero_grad()
        loss_d.backward()
        self.opt_d.step()
        loss_gan, loss_rec = -self.critic(torch.cat([x, fake], 1)).mean(), F.l1_loss(fake, wanted)
        self.opt_g.zero_grad()
        (loss_gan + 10 * loss_rec).backward()
        self.opt_g.step()
        values = {"G_gan": loss_gan, "G_recon": loss_rec, "D": loss_d, "D_real": loss_real, "D_fake": loss_fake}
        return {name: value.item() for name, value in values.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--print-freq", type=int, default=100)
    opt = parser.parse_args()
    random.seed(233)
    torch.manual_seed(233)
    pictures = torch.rand(200, 3, 48, 48) * 2 - 1
    model = Distiller(opt)
    with tempfile.TemporaryDirectory() as folder:
        board = Board(Path(folder) / "index.html")
        for step in range(opt.iterations):
            losses = model.optimize_parameters(pictures[torch.randint(200, (opt.batch_size,))])
            board.add(step, **losses)
            board.draw()
            if step % opt.print_freq == 0:
                print(f"(iters: {step})", " ".join(f"{k}: {v:.3f}" for k, v in losses.items()))


if __name__ == "__main__":
    main()
