"""Size of hailstones from radar columns: a convolutional regressor in Lightning."""

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


def simulate(columns, heights=64, channels=6, seed=21):
    generator = torch.Generator().manual_seed(seed)
    size = torch.rand(columns, generator=generator) * 5
    height = torch.linspace(0, 1, heights)
    top = 0.3 + 0.1 * size + 0.1 * torch.rand(columns, generator=generator)
    echo_shape = torch.exp(-((height - top[:, None]) ** 2) / 0.02) * size[:, None]
    gain = torch.rand(channels, 1, generator=generator) + 0.5
    echoes = echo_shape.unsqueeze(1) * gain
    return echoes + 0.2 * torch.randn(columns, channels, heights, generator=generator), size


class RadarColumns(L.LightningDataModule):
    def __init__(self, columns=16_000, batch_size=128):
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage):
        self.columns = TensorDataset(*simulate(self.hparams.columns))

    def train_dataloader(self):
        sampler = BatchSampler(RandomSampler(self.columns), self.hparams.batch_size, drop_last=True)
        return DataLoader(self.columns, sampler=sampler, batch_size=None)


class HailModel(L.LightningModule):
    def __init__(self, channels=6, width=64, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        widths = [channels, width, width, 2 * width]
        layers = []
        for inputs, outputs in zip(widths, widths[1:], strict=False):
            layers += [
                nn.Conv1d(inputs, outputs, 5, padding=2, bias=False),
                nn.BatchNorm1d(outputs),
                nn.ReLU(inplace=True),
                nn.MaxPool1d(2),
            ]
        self.body = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, echoes):
        return self.head(self.body(echoes).amax(dim=2)).squeeze(1)

    def training_step(self, batch, batch_idx):
        echoes, size = batch
        loss = F.smooth_l1_loss(self(echoes), size)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, fused=True)


def main():
    L.seed_everything(4)
    trainer = L.Trainer(
        max_epochs=3,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(HailModel(), datamodule=RadarColumns())
    print("loss", trainer.callback_metrics["loss"].item())


if __name__ == "__main__":
    main()
