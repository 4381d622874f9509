"""Unconditional diffusion of short foghorn sounds with a small 1-D U-Net: datamodule and module of Lightning."""

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SAMPLE_RATE = 4000
LENGTH = 2048


class Foghorns(Dataset):
    """A low tone with overtones, some beating and a slow swell, drawn anew from the index."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        t = torch.arange(LENGTH) / SAMPLE_RATE
        pitch = 60 + 80 * torch.rand(1, generator=g)
        parts = torch.arange(1, 9).unsqueeze(1)
        phases = 2 * torch.pi * (parts * pitch * t + torch.rand(8, 1, generator=g))
        tone = (phases.sin() * (0.6**parts)).sum(0)
        swell = torch.sin(torch.pi * t / t[-1]) ** 0.5
        return (tone * swell + 0.02 * torch.randn(LENGTH, generator=g)).unsqueeze(0)


class AudioDatamodule(L.LightningDataModule):
    def __init__(self, dataset, batch_size, num_workers):
        super().__init__()
        self.dataset = dataset
        self.batch_size = batch_size
        self.num_workers = num_workers

    def train_dataloader(self):
        return DataLoader(
            self.dataset,
            batch_size=self.batch_size,
            num_workers=self.num_workers,
            shuffle=True,
            drop_last=True,
        )


class Block(nn.Module):
    def __init__(self, c_in, c_out, time_dim):
        super().__init__()
        self.norm = nn.GroupNorm(4, c_in)
        self.conv1 = nn.Conv1d(c_in, c_out, 5, padding=2)
        self.conv2 = nn.Conv1d(c_out, c_out, 5, padding=2)
        self.time = nn.Linear(time_dim, c_out)
        self.skip = nn.Conv1d(c_in, c_out, 1)

    def forward(self, x, t):
        h = self.conv1(F.silu(self.norm(x))) + self.time(t).unsqueeze(-1)
        return self.conv2(F.silu(h)) + self.skip(x)


class UNet1d(nn.Module):
    def __init__(self, widths=(16, 24, 32), time_dim=32):
        super().__init__()
        self.patch = nn.Conv1d(1, widths[0], 8, stride=8)
        self.time = nn.Sequential(nn.Linear(1, time_dim), nn.SiLU(), nn.Linear(time_dim, time_dim))
        self.down = nn.ModuleList(Block(a, b, time_dim) for a, b in zip(widths, widths[1:]))
        self.middle = Block(widths[-1], widths[-1], time_dim)
        self.up = nn.ModuleList(Block(2 * b, a, time_dim) for a, b in zip(widths[-2::-1], widths[:0:-1]))
        self.unpatch = nn.ConvTranspose1d(widths[0], 1, 8, stride=8)

    def forward(self, x, sigma):
        t = self.time(sigma.view(-1, 1))
        x, skips = self.patch(x), []
        for block in self.down:
            x = block(x, t)
            skips.append(x)
            x = F.avg_pool1d(x, 2)
        x = self.middle(x, t)
        for block in self.up:
            x = block(torch.cat([F.interpolate(x, scale_factor=2.0), skips.pop()], dim=1), t)
        return self.unpatch(x)


class DiffusionModel(L.LightningModule):
    """Learns the velocity between noise and sound."""

    def __init__(self, lr):
        super().__init__()
        self.lr = lr
        self.net = UNet1d()

    def training_step(self, batch, batch_idx):
        sigma = torch.rand(len(batch), device=batch.device)
        angle = (sigma * torch.pi / 2).view(-1, 1, 1)
        noise = torch.randn_like(batch)
        noisy = angle.cos() * batch + angle.sin() * noise
        velocity = angle.cos() * noise - angle.sin() * batch
        loss = F.mse_loss(self.net(noisy, sigma), velocity)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr, betas=(0.95, 0.999), weight_decay=1e-3)


def main():
    L.seed_everything(4, workers=True)
    datamodule = AudioDatamodule(Foghorns(192), batch_size=16, num_workers=1)
    trainer = L.Trainer(
        max_epochs=28,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(DiffusionModel(lr=1e-3), datamodule=datamodule)
    print(f"loss {trainer.callback_metrics['train_loss'].item():.4f}")


if __name__ == "__main__":
    main()
