"""Defects in textures, pixel by pixel, on two ranks; a module with metrics in the manner of Lightning."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel


def textures(count, size, seed):
    """Stripes with scratches, and where the scratches are."""
    g = torch.Generator().manual_seed(seed)
    axis = torch.linspace(-1, 1, size)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    angle, phase, tilt = (6.28 * torch.rand(count, 1, 1, generator=g) for _ in range(3))
    stripes = torch.sin(14 * (angle.cos() * y + angle.sin() * x) + phase)
    across = tilt.cos() * y + tilt.sin() * x - 0.6 * (torch.rand(count, 1, 1, generator=g) - 0.5)
    along = tilt.cos() * x - tilt.sin() * y
    defect = (across.abs() < 0.08) & (along.abs() < 0.6)
    pictures = stripes + 0.8 * defect + 0.3 * torch.randn(count, size, size, generator=g)
    return pictures[:, None], defect[:, None].float()


class AUROC:
    """Area under the curve of hits against false alarms, over the scores of all ranks.

    Called, it gives the value of this batch and keeps the batch for the whole epoch; update only keeps it.
    """

    def __init__(self):
        self.scores, self.targets = [], []

    def update(self, scores, targets):
        self.scores.append(scores.detach().flatten())
        self.targets.append(targets.flatten())

    def __call__(self, scores, targets):
        self.update(scores, targets)
        return self.area(self.gathered(self.scores[-1]), self.gathered(self.targets[-1]))

    def compute(self):
        value = self.area(self.gathered(torch.cat(self.scores)), self.gathered(torch.cat(self.targets)))
        self.scores, self.targets = [], []
        return value

    @staticmethod
    def gathered(state):
        parts = [torch.empty_like(state) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, state)
        return torch.cat(parts)

    @staticmethod
    def area(scores, targets):
        hits = targets[scores.argsort(descending=True)]
        true, false = hits.cumsum(0), (1 - hits).cumsum(0)
        return torch.trapezoid(true / true[-1], false / false[-1])


class DefectNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 5, 2, 2),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, 1, 2, dilation=2),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, 1, 4, dilation=4),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, 1, 1),
        )

    def forward(self, x):
        return self.layers(x)


class DefectModule:
    def __init__(self, args):
        self.model = DistributedDataParallel(DefectNet())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr, fused=True)
        self.auroc = AUROC()

    def training_step(self, pictures, defects):
        logits = self.model(pictures)
        target = F.max_pool2d(defects, 2)
        loss = F.binary_cross_entropy_with_logits(logits, target, pos_weight=torch.tensor(4.0))
        self.auroc.update(logits, target)
        return loss

    def on_epoch_end(self, epoch):
        value = self.auroc.compute().item()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: area under the curve {value:.4f}")


def fit(module, data, args):
    rank, world = dist.get_rank(), dist.get_world_size()
    for epoch in range(args.epochs):
        order = torch.randperm(args.pictures, generator=torch.Generator().manual_seed(epoch))
        for index in order[rank::world].split(args.batch_size):
            loss = module.training_step(*(part[index] for part in data))
            module.optimizer.zero_grad()
            loss.backward()
            module.optimizer.step()
        module.on_epoch_end(epoch)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pictures", type=int, default=2560)
    parser.add_argument("--size", type=int, default=48)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    fit(DefectModule(args), textures(args.pictures, args.size, seed=7), args)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
