"""Recognise tractors by the sound of their engines: a spectrogram transformer with Lightning."""

import argparse
import logging
import math
import tempfile
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.utilities import grad_norm
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

SAMPLE_RATE = 4000


def synthesize(clips, classes, seconds, generator):
    """Engines that fire at a rate of their make, with overtones and noise of the road."""
    labels = torch.randint(0, classes, (clips,), generator=generator)
    time = torch.arange(int(SAMPLE_RATE * seconds)) / SAMPLE_RATE
    rate = 18.0 + 5.0 * labels[:, None] + torch.rand(clips, 1, generator=generator) * 3
    wave = sum(torch.sin(2 * math.pi * k * rate * time) / k for k in (1, 2, 3, 5))
    return wave + 0.7 * torch.randn(clips, len(time), generator=generator), labels


def log_spectrogram(waves, n_fft=256, hop=64):
    window = torch.hann_window(n_fft)
    spectrum = torch.stft(waves, n_fft, hop, window=window, return_complex=True).abs()
    features = torch.log1p(spectrum[:, :96])
    return (features - features.mean()) / features.std()


class EngineData(L.LightningDataModule):
    def __init__(self, clips, classes, batch_size):
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage=None):
        generator = torch.Generator().manual_seed(3)
        waves, labels = synthesize(self.hparams.clips, self.hparams.classes, 1.0, generator)
        self.train_set = TensorDataset(log_spectrogram(waves), labels)

    def train_dataloader(self):
        return DataLoader(self.train_set, self.hparams.batch_size, shuffle=True, drop_last=True)


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(mixed)
        return x + self.mlp(self.norm2(x))


class EngineClassifier(L.LightningModule):
    def __init__(self, classes, width=96, depth=5, heads=4, lr=6e-4):
        super().__init__()
        self.save_hyperparameters()
        self.stem = nn.Conv1d(96, width, kernel_size=3, stride=2, padding=1)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, spectrograms):
        x = self.stem(spectrograms).transpose(1, 2)
        return self.head(self.norm(self.layers(x)).mean(dim=1))

    def training_step(self, batch, _):
        spectrograms, labels = batch
        loss = F.cross_entropy(self(spectrograms), labels)
        self.log("train_loss", loss)
        return loss

    def on_before_optimizer_step(self, optimizer):
        if self.global_step % self.trainer.log_every_n_steps == 0:
            self.log_dict(grad_norm(self, norm_type=2))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, fused=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--clips", type=int, default=960)
    parser.add_argument("--classes", type=int, default=9)
    parser.add_argument("--batch-size", type=int, default=40)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    L.seed_everything(3, verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(
            accelerator="cpu",
            max_epochs=args.epochs,
            logger=CSVLogger(folder),
            log_every_n_steps=20,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(EngineClassifier(args.classes), EngineData(args.clips, args.classes, args.batch_size))
        print(f"last loss {trainer.callback_metrics['train_loss']:.4f}")


if __name__ == "__main__":
    main()
