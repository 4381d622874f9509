"""Water levels behind sluices from rain and gates: a GRU that reads a week and says the next day."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    sluices: int = 60
    hours: int = 1500
    past: int = 72
    ahead: int = 24
    variables: int = 6
    hidden: int = 112
    batch_size: int = 64
    steps: int = 300
    evaluate_every: int = 100
    lr: float = 2e-3
    seed: int = 23


class Canal:
    """All series in one tensor; a batch is one gather of windows."""

    def __init__(self, config: Config):
        generator = torch.Generator().manual_seed(config.seed)
        shape = (config.sluices, config.hours)
        rain = F.relu(torch.randn(shape, generator=generator) - 1)
        gate = (torch.rand(shape, generator=generator) < 0.3).float()
        kernel = torch.exp(-torch.arange(48) / 12).flip(0)
        inflow = F.conv1d(F.pad(rain[:, None], (47, 0)), kernel[None, None])[:, 0]
        tide = torch.sin(torch.arange(config.hours) * (2 * torch.pi / 12.4)).expand(shape)
        level = inflow - 0.5 * gate + 0.3 * tide + 0.05 * torch.randn(shape, generator=generator)
        other = torch.randn(*shape, config.variables - 4, generator=generator)
        self.series = torch.cat([torch.stack([level, rain, gate, tide], dim=-1), other], dim=-1)
        self.offsets = torch.arange(config.past + config.ahead)
        self.config = config

    def windows(self, sluices: torch.Tensor, starts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        block = self.series[sluices[:, None], starts[:, None] + self.offsets]
        return block[:, : self.config.past], block[:, self.config.past :, 0]

    def draw(self, first: int, last: int, count: int, generator: torch.Generator):
        sluices = torch.randint(0, self.config.sluices, (count,), generator=generator)
        starts = torch.randint(first, last - len(self.offsets), (count,), generator=generator)
        return self.windows(sluices, starts)


class LevelModel(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.gru = nn.GRU(config.variables, config.hidden, batch_first=True)
        self.head = nn.Sequential(
            nn.LayerNorm(config.hidden),
            nn.Linear(config.hidden, config.hidden),
            nn.SiLU(),
            nn.Linear(config.hidden, config.ahead),
        )

    def forward(self, past: torch.Tensor) -> torch.Tensor:
        _, last = self.gru(past)
        return past[:, -1:, 0] + self.head(last[0])


@torch.inference_mode()
def evaluate(model: LevelModel, past: torch.Tensor, levels: torch.Tensor) -> float:
    model.eval()
    error = torch.cat([(model(p) - y).abs().mean(dim=1) for p, y in zip(past.split(256), levels.split(256))])
    model.train()
    return error.mean().item()


def main() -> None:
    config = Config()
    torch.manual_seed(config.seed)
    generator = torch.Generator().manual_seed(config.seed)
    canal = Canal(config)
    cut = int(0.8 * config.hours)
    held_past, held_levels = canal.draw(cut, config.hours, 512, generator)
    model = LevelModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, fused=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.steps)
    running = torch.zeros(())
    for step in range(1, config.steps + 1):
        past, levels = canal.draw(0, cut, config.batch_size, generator)
        loss = F.smooth_l1_loss(model(past), levels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        running += loss.detach()
        if step % config.evaluate_every == 0:
            error = evaluate(model, held_past, held_levels)
            print(f"step {step}: loss {running.item() / config.evaluate_every:.4f}, error {error:.4f}")
            running.zero_()


if __name__ == "__main__":
    main()
