"""Forecast the pore pressure in a sea dyke a day ahead, with a temporal convolutional network and Lightning."""

from dataclasses import dataclass, field

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class ModelConfig:
    channels: int = 32
    levels: int = 6
    kernel: int = 3
    dropout: float = 0.0


@dataclass
class TrainerConfig:
    max_epochs: int = 2
    batch_size: int = 32
    gradient_clip_val: float = 1.0
    detect_anomaly: bool = False
    lr: float = 1e-3


@dataclass
class Config:
    gauges: int = 12
    context: int = 120
    horizon: int = 24
    windows: int = 3600
    seed: int = 11
    model: ModelConfig = field(default_factory=ModelConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)


def simulate_pressures(cfg):
    """Tides of two periods seep through the dyke: each gauge sees them damped and late."""
    generator = torch.Generator().manual_seed(cfg.seed)
    hours = torch.arange(cfg.windows // 2 + cfg.context + cfg.horizon, dtype=torch.float32)
    depth = torch.linspace(0.1, 1.5, cfg.gauges)[:, None]
    tide = torch.sin(2 * torch.pi * hours / 12.42 - depth) * (-depth).exp()
    spring = 0.4 * torch.sin(2 * torch.pi * hours / 354.0 - 2 * depth)
    return tide + spring + 0.05 * torch.randn(cfg.gauges, hours.numel(), generator=generator)


def cut_windows(cfg):
    series = simulate_pressures(cfg)
    length = cfg.context + cfg.horizon
    windows = series.unfold(1, length, 1).permute(1, 0, 2)
    chosen = torch.randint(0, windows.shape[0], (cfg.windows,), generator=torch.Generator().manual_seed(cfg.seed))
    windows = windows[chosen]
    return TensorDataset(windows[..., : cfg.context].contiguous(), windows[..., cfg.context :].contiguous())


class CausalConv(nn.Module):
    def __init__(self, inputs, outputs, kernel, dilation):
        super().__init__()
        self.padding = (kernel - 1) * dilation
        self.conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(inputs, outputs, kernel, dilation=dilation))

    def forward(self, x):
        return self.conv(nn.functional.pad(x, (self.padding, 0)))


class TemporalBlock(nn.Module):
    def __init__(self, inputs, outputs, kernel, dilation, dropout):
        super().__init__()
        self.first = CausalConv(inputs, outputs, kernel, dilation)
        self.second = CausalConv(outputs, outputs, kernel, dilation)
        self.skip = nn.Conv1d(inputs, outputs, 1) if inputs != outputs else nn.Identity()
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        y = self.dropout(torch.relu(self.first(x)))
        y = self.dropout(torch.relu(self.second(y)))
        return torch.relu(y + self.skip(x))


class PressureForecaster(pl.LightningModule):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        m = cfg.model
        sizes = [cfg.gauges] + [m.channels] * m.levels
        self.blocks = nn.Sequential(
            *[
                TemporalBlock(a, b, m.kernel, 2**level, m.dropout)
                for level, (a, b) in enumerate(zip(sizes[:-1], sizes[1:], strict=True))
            ]
        )
        self.head = nn.Linear(m.channels, cfg.gauges * cfg.horizon)

    def forward(self, context):
        last = self.blocks(context)[..., -1]
        return self.head(last).view(-1, self.cfg.gauges, self.cfg.horizon)

    def training_step(self, batch, batch_idx):
        context, future = batch
        loss = nn.functional.smooth_l1_loss(self(context), future)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.cfg.trainer.lr, fused=True)


def main():
    cfg = Config()
    pl.seed_everything(cfg.seed)
    loader = DataLoader(cut_windows(cfg), batch_size=cfg.trainer.batch_size, shuffle=True, drop_last=True)
    model = PressureForecaster(cfg)
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=cfg.trainer.max_epochs,
        gradient_clip_val=cfg.trainer.gradient_clip_val,
        detect_anomaly=cfg.trainer.detect_anomaly,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, loader)
    print(f"smooth L1 {trainer.callback_metrics['loss'].item():.4f}")


if __name__ == "__main__":
    main()
