"""Showers of meteors from the logs of observers: parsed into sequences, classified by a GRU under Lightning."""

import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

SHOWERS = ("perseids", "geminids", "leonids", "orionids", "sporadic")
SPEEDS = {"perseids": 59, "geminids": 35, "leonids": 71, "orionids": 66, "sporadic": 45}
FEATURES = 5


@dataclass
class Config:
    folder: str = ""
    nights: int = 420
    held_out: int = 60
    meteors: int = 48
    hidden: int = 64
    batch_size: int = 24
    epochs: int = 10
    lr: float = 3e-3
    seed: int = 812


def write_logs(config: Config) -> None:
    """One file for each night, one line for each meteor that an observer saw."""
    rng = np.random.default_rng(config.seed)
    for night in range(config.nights + config.held_out):
        shower = SHOWERS[night % len(SHOWERS)]
        seconds = np.sort(rng.uniform(0, 6 * 3600, config.meteors)).astype(int)
        lines = [f"# shower: {shower}"]
        for second in seconds:
            member = rng.random() < 0.3
            speed = SPEEDS[shower] + rng.normal(0, 9) if member else rng.uniform(15, 75)
            hour, rest = divmod(int(second), 3600)
            moment = f"2019-08-{1 + night % 28:02d}T{hour:02d}:{rest // 60:02d}:{rest % 60:02d}"
            magnitude, azimuth = rng.normal(2.5, 1.2), rng.uniform(0, 360)
            lines.append(f"{moment};mag={magnitude:+.1f};speed={speed:.1f}km/s;az={azimuth:.0f}deg")
        folder = "train" if night < config.nights else "test"
        Path(config.folder, folder).mkdir(exist_ok=True)
        Path(config.folder, folder, f"night_{night:04d}.log").write_text("\n".join(lines))


def parse_line(line: str) -> list[float]:
    stamp, *fields = line.split(";")
    moment = datetime.fromisoformat(stamp)
    values = dict(field.split("=") for field in fields)
    azimuth = np.deg2rad(float(values["az"].removesuffix("deg")))
    return [
        (moment.hour * 60 + moment.minute) / 360 - 0.5,
        float(values["mag"]) / 3,
        float(values["speed"].removesuffix("km/s")) / 30 - 1.5,
        float(np.sin(azimuth)),
        float(np.cos(azimuth)),
    ]


class NightLogs(Dataset):
    def __init__(self, folder: Path):
        self.nights, self.labels = [], []
        for path in sorted(folder.glob("*.log")):
            head, *lines = path.read_text().splitlines()
            self.labels.append(SHOWERS.index(head.split(": ")[1]))
            self.nights.append(torch.tensor([parse_line(line) for line in lines]))

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.nights[index], self.labels[index]


class MeteorData(L.LightningDataModule):
    def __init__(self, config: Config):
        super().__init__()
        self.config = config

    def prepare_data(self) -> None:
        write_logs(self.config)

    def train_dataloader(self) -> DataLoader:
        nights = NightLogs(Path(self.config.folder, "train"))
        return DataLoader(nights, batch_size=self.config.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self) -> DataLoader:
        nights = NightLogs(Path(self.config.folder, "test"))
        return DataLoader(nights, batch_size=self.config.held_out)


class ShowerModel(L.LightningModule):
    def __init__(self, hidden: int, lr: float):
        super().__init__()
        self.save_hyperparameters()
        self.inner = nn.Sequential(nn.Linear(FEATURES, hidden), nn.ReLU(), nn.Linear(hidden, hidden))
        self.memory = nn.GRU(hidden, hidden, batch_first=True)
        self.outer = nn.Linear(2 * hidden, len(SHOWERS))

    def forward(self, nights: torch.Tensor) -> torch.Tensor:
        states, last = self.memory(self.inner(nights))
        return self.outer(torch.cat([states.amax(1), last[-1]], dim=1))

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        nights, labels = batch
        loss = F.cross_entropy(self(nights), labels)
        self.log("train_loss", loss, on_step=False, on_epoch=True, batch_size=len(labels))
        return loss

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        nights, labels = batch
        logits = self(nights)
        self.log("val_loss", F.cross_entropy(logits, labels), batch_size=len(labels))
        self.log("val_accuracy", (logits.argmax(1) == labels).float().mean(), batch_size=len(labels))

    def configure_optimizers(self) -> dict:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        return {"optimizer": optimizer, "lr_scheduler": scheduler}


def main() -> None:
    config = Config()
    L.seed_everything(config.seed, verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        config.folder = folder
        trainer = L.Trainer(
            accelerator="cpu",
            max_epochs=config.epochs,
            reload_dataloaders_every_n_epochs=1,
            default_root_dir=folder,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
        trainer.fit(ShowerModel(config.hidden, config.lr), datamodule=MeteorData(config))
        metrics = {name: round(value.item(), 3) for name, value in trainer.callback_metrics.items()}
    print(f"after {config.epochs} epochs: {metrics}")


if __name__ == "__main__":
    main()
