"""An emulator of the ocean's surface, rolled out over two steps, on two processes."""

import dataclasses

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@dataclasses.dataclass
class Config:
    variables: int = 4
    width: int = 12
    levels: int = 3
    blocks: int = 4
    grid: tuple = (16, 32)
    batch: int = 2
    steps: int = 100
    schedule: str = "mix"


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.norm = nn.GroupNorm(1, width)
        self.up, self.down = nn.Conv2d(width, 2 * width, 1), nn.Conv2d(2 * width, width, 1)
        self.scale = nn.Parameter(torch.full((width, 1, 1), 0.1))

    def forward(self, x):
        return x + self.scale * self.down(F.gelu(self.up(self.norm(self.depthwise(x)))))


class Emulator(nn.Module):
    def __init__(self, config):
        super().__init__()
        widths = [config.width * 2**level for level in range(config.levels)]
        self.inlet = nn.Conv2d(config.variables, widths[0], 1)
        self.down = nn.ModuleList(nn.Sequential(*[Block(w) for _ in range(config.blocks)]) for w in widths)
        self.shrink = nn.ModuleList(nn.Conv2d(a, b, 2, stride=2) for a, b in zip(widths, widths[1:], strict=False))
        self.grow = nn.ModuleList(
            nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in zip(widths, widths[1:], strict=False)
        )
        self.up = nn.ModuleList(nn.Sequential(*[Block(w) for _ in range(config.blocks)]) for w in widths[:-1])
        self.outlet = nn.Conv2d(widths[0], config.variables, 1)

    def step(self, state):
        h, kept = self.inlet(state), []
        for level, blocks in enumerate(self.down):
            h = blocks(h)
            if level < len(self.shrink):
                kept.append(h)
                h = self.shrink[level](h)
        for level in reversed(range(len(self.grow))):
            h = self.up[level](self.grow[level](h) + kept[level])
        return state + self.outlet(h)

    def forward(self, state, steps):
        out = []
        for _ in range(steps):
            state = self.step(state)
            out.append(state)
        return torch.stack(out, dim=1)


def main(config):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(Emulator(config), find_unused_parameters=config.schedule in ("match", "mix"))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    gen = torch.Generator().manual_seed(dist.get_rank())
    ocean = torch.randn(64, config.variables, *config.grid, generator=gen).cumsum(0) * 0.1
    for step in range(config.steps):
        rows = torch.randint(61, (config.batch,), generator=gen)
        state, target = ocean[rows], torch.stack([ocean[rows + 1], ocean[rows + 2]], dim=1)
        loss = F.mse_loss(model(state, 2), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0 and dist.get_rank() == 0:
            print(f"step {step}: {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Config())
