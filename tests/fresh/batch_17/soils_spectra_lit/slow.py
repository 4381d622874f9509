"""What is in this soil? Lightning fits a convolutional network to slopes of infrared spectra."""

import tempfile
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.nn import functional as F
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, TensorDataset
from torchmetrics import MeanAbsoluteError

CONTENTS = ("carbon", "clay", "sand", "nitrogen", "lime", "iron")


class SoilData(L.LightningDataModule):
    """Raw spectra lie in a file; they are smoothed, differentiated and scaled before they are used."""

    def __init__(self, folder, samples=8192, bands=256, batch_size=256):
        super().__init__()
        self.folder, self.samples, self.bands, self.batch_size = Path(folder), samples, bands, batch_size

    def prepare_data(self):
        gen = torch.Generator().manual_seed(17)
        contents = torch.rand(self.samples, len(CONTENTS), generator=gen)
        waves = torch.linspace(0, 1, self.bands)
        centres, widths = torch.rand(2, len(CONTENTS), 4, 1, generator=gen)
        peaks = torch.exp(-(((waves - centres) / (0.01 + 0.05 * widths)) ** 2)).sum(1)
        spectra = (contents @ peaks).exp().neg() + 0.02 * torch.randn(self.samples, self.bands, generator=gen)
        held = self.samples // 8
        torch.save((spectra[held:].clone(), contents[held:].clone()), self.folder / "train.pt")
        torch.save((spectra[:held].clone(), contents[:held].clone()), self.folder / "val.pt")

    def loader(self, split, order):
        """Takes the rows of a whole batch from the tensors at once."""
        spectra, contents = torch.load(self.folder / f"{split}.pt")
        wide = F.pad(spectra.unsqueeze(1), (8, 8), mode="replicate")
        smooth = wide.unfold(2, 17, 1).median(-1).values.squeeze(1)
        slope = torch.gradient(smooth, dim=1)[0]
        scaled = (slope - slope.mean(1, keepdim=True)) / slope.std(1, keepdim=True)
        data = TensorDataset(scaled, contents)
        return DataLoader(data, sampler=BatchSampler(order(data), self.batch_size, drop_last=False), batch_size=None)

    def train_dataloader(self):
        return self.loader("train", RandomSampler)

    def val_dataloader(self):
        return self.loader("val", SequentialSampler)


class SpectraNet(L.LightningModule):
    def __init__(self, width=16, lr=3e-3):
        super().__init__()
        self.save_hyperparameters()
        self.body = nn.Sequential(
            nn.Conv1d(1, width, 9, 4, 4),
            nn.GELU(),
            nn.Conv1d(width, 2 * width, 5, 2, 2),
            nn.GELU(),
            nn.Conv1d(2 * width, 2 * width, 5, 2, 2),
            nn.GELU(),
            nn.Flatten(),
            nn.LazyLinear(len(CONTENTS)),
        )
        self.val_error = MeanAbsoluteError()

    def forward(self, spectra):
        return self.body(spectra.unsqueeze(1))

    def training_step(self, batch, batch_idx):
        spectra, contents = batch
        guess = self(spectra)
        loss = F.mse_loss(guess, contents)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        spectra, contents = batch
        guess = self(spectra)
        self.val_error.update(guess, contents)

    def on_validation_epoch_end(self):
        self.log("val_error", self.val_error, prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


def main():
    L.seed_everything(0)
    with tempfile.TemporaryDirectory() as folder:
        data, model = SoilData(folder), SpectraNet()
        model(torch.zeros(1, data.bands))
        trainer = L.Trainer(
            accelerator="cpu",
            max_epochs=11,
            logger=CSVLogger(folder),
            default_root_dir=folder,
            log_every_n_steps=10,
            reload_dataloaders_every_n_epochs=1,
            enable_progress_bar=False,
            enable_checkpointing=False,
        )
        trainer.fit(model, datamodule=data)


if __name__ == "__main__":
    main()
