"""Which seals call in a recording from under the ice: multi-label tagging of log-mel patches with Lightning."""

import argparse
import math
import tempfile

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MetricCollection
from torchmetrics.classification import MultilabelAUROC, MultilabelAveragePrecision

CALLS = 16


def synthesise(clips, seed, length=4096, rate=4000):
    """Sums of rising and falling tones in noise; the tones that sound are the labels."""
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(clips, CALLS, generator=generator) < 0.3).float()
    time = torch.arange(length) / rate
    start = torch.linspace(150, 1500, CALLS).unsqueeze(1)
    slope = torch.linspace(-120, 240, CALLS).unsqueeze(1)
    tones = torch.sin(2 * math.pi * (start * time + 0.5 * slope * time**2))
    return labels @ tones + 0.8 * torch.randn(clips, length, generator=generator), labels


def log_spectrogram(waves, n_fft=126, hop=64):
    spectrum = torch.stft(waves, n_fft, hop, window=torch.hann_window(n_fft), return_complex=True)
    return torch.log1p(spectrum.abs()).unsqueeze(1)


class SealData(L.LightningDataModule):
    def __init__(self, clips=960, batch_size=32):
        super().__init__()
        self.clips, self.batch_size = clips, batch_size

    def setup(self, stage=None):
        waves, labels = synthesise(self.clips + 128, seed=5)
        patches = log_spectrogram(waves)
        self.train = TensorDataset(patches[: self.clips], labels[: self.clips])
        self.valid = TensorDataset(patches[self.clips :], labels[self.clips :])

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=self.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.valid, batch_size=64)


class Block(nn.Module):
    def __init__(self, channels, out):
        super().__init__()
        self.conv = nn.Conv2d(channels, out, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(out)

    def forward(self, inputs):
        return F.max_pool2d(F.relu(self.norm(self.conv(inputs))), 2)


class SealTagger(L.LightningModule):
    def __init__(self, channels=8, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.blocks = nn.Sequential(
            Block(1, channels), Block(channels, 2 * channels), Block(2 * channels, 4 * channels)
        )
        self.head = nn.Linear(4 * channels, CALLS)
        scores = MetricCollection(
            {"auroc": MultilabelAUROC(CALLS), "precision": MultilabelAveragePrecision(CALLS)}, compute_groups=False
        )
        self.train_scores = scores.clone(prefix="train_")
        self.valid_scores = scores.clone(prefix="valid_")

    def forward(self, patches):
        features = self.blocks(patches)
        return self.head(features.mean(dim=(2, 3)) + features.amax(dim=(2, 3)))

    def training_step(self, batch, batch_idx):
        patches, labels = batch
        logits = self(patches)
        loss = F.binary_cross_entropy_with_logits(logits, labels)
        self.log_dict(self.train_scores(logits.detach().sigmoid(), labels.long()))
        self.log("loss", loss)
        return loss

    def on_train_epoch_end(self):
        self.log_dict({f"{name}_epoch": score for name, score in self.train_scores.compute().items()})
        self.train_scores.reset()

    def validation_step(self, batch, batch_idx):
        patches, labels = batch
        logits = self(patches)
        self.log("valid_loss", F.binary_cross_entropy_with_logits(logits, labels))
        self.valid_scores.update(logits.sigmoid(), labels.long())

    def on_validation_epoch_end(self):
        self.log_dict(self.valid_scores.compute())
        self.valid_scores.reset()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr, fused=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--channels", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()

    L.seed_everything(5, verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(
            max_epochs=args.epochs,
            accelerator="cpu",
            logger=CSVLogger(folder),
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            log_every_n_steps=20,
        )
        trainer.fit(SealTagger(args.channels), SealData(batch_size=args.batch_size))
        print({name: round(value.item(), 4) for name, value in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()
