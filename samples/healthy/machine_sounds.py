"""Machines by their hum: waves as integers from a loader in blocks, log-mel spectra on the device, mix-up."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

RATE = 8000


@dataclass(frozen=True)
class Config:
    clips: int = 1920
    machines: int = 8
    bands: int = 32
    window: int = 256
    hop: int = 128
    width: int = 48
    batch: int = 64
    epochs: int = 3
    lr: float = 2e-3


class Clips(Dataset):
    """One second each as 16-bit integers; an index is that of a whole batch."""

    def __init__(self, cfg):
        self.machine = torch.randint(0, cfg.machines, (cfg.clips,))
        time = torch.arange(RATE) / RATE
        pitch = 60 + 25 * self.machine[:, None] + 4 * torch.rand(cfg.clips, 1)
        hum = sum(torch.sin(6.2832 * pitch * time * n) / n for n in (1, 2, 5))
        self.waves = (4000 * (hum + torch.randn_like(hum))).clamp(-32768, 32767).to(torch.int16)

    def __len__(self):
        return len(self.machine)

    def __getitem__(self, rows):
        return self.waves[rows], self.machine[rows]


class Spectrum(nn.Module):
    """Log-mel bands of (batch, samples) waves; window and bank are made once, in single precision."""

    def __init__(self, cfg):
        super().__init__()
        self.window_size, self.hop = cfg.window, cfg.hop
        self.register_buffer("window", torch.hann_window(cfg.window))
        edges = 700 * (10 ** (torch.linspace(0, 2146.1, cfg.bands + 2) / 2595) - 1)
        bins = torch.linspace(0, RATE / 2, cfg.window // 2 + 1)[:, None]
        rising = (bins - edges[:-2]) / (edges[1:-1] - edges[:-2])
        falling = (edges[2:] - bins) / (edges[2:] - edges[1:-1])
        self.register_buffer("bank", torch.minimum(rising, falling).clamp(min=0))

    @torch.no_grad()
    def forward(self, waves):
        frames = (waves.float() / 32768).unfold(1, self.window_size, self.hop) * self.window
        power = torch.view_as_real(torch.fft.rfft(frames)).square().sum(-1)
        return torch.log(power @ self.bank + 1e-5).transpose(1, 2)


class Listener(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.spectrum, self.norm = Spectrum(cfg), nn.BatchNorm1d(cfg.bands)
        self.convs = nn.Sequential(
            nn.Conv1d(cfg.bands, cfg.width, 5, 2, 2), nn.GELU(), nn.Conv1d(cfg.width, cfg.width, 3, 2, 1), nn.GELU()
        )
        self.head = nn.Linear(cfg.width, cfg.machines)

    def forward(self, waves, mixed):
        """Scores; `mixed` is the share of each clip's own spectrum, the rest comes from its neighbour."""
        bands = self.norm(self.spectrum(waves))
        bands = torch.lerp(bands.roll(1, 0), bands, mixed[:, None, None])
        with torch.autocast(waves.device.type, dtype=torch.bfloat16):
            return self.head(self.convs(bands).mean(2)).float()


def train(cfg):
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = Clips(cfg)
    rows = BatchSampler(RandomSampler(data), cfg.batch, drop_last=True)
    loader = DataLoader(data, sampler=rows, batch_size=None, pin_memory=device == "cuda")
    model = Listener(cfg).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, cfg.lr, total_steps=cfg.epochs * len(loader))
    for epoch in range(cfg.epochs):
        losses = []
        for waves, machine in loader:
            waves, machine = waves.to(device, non_blocking=True), machine.to(device, non_blocking=True)
            mixed = torch.rand(len(waves), device=device).mul(0.5).add(0.5)
            logs = model(waves, mixed).log_softmax(1)
            own, other = logs.gather(1, machine[:, None]), logs.gather(1, machine.roll(1, 0)[:, None])
            loss = -torch.lerp(other, own, mixed[:, None]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.detach())
        print(f"epoch {epoch}: loss {torch.stack(losses).mean().item():.3f}")


if __name__ == "__main__":
    train(Config())
