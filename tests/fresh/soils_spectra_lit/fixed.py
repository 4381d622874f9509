"""What is in this soil? Lightning fits a convolutional network to infrared spectra and watches its ranking."""

import tempfile

import lightning as L
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.nn import functional as F
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, TensorDataset
from torchmetrics import MeanAbsoluteError, Metric

CONTENTS = ("carbon", "clay", "sand", "nitrogen", "lime", "iron")


class PairsInOrder(Metric):
    """The share of pairs of samples that predictions put in the right order, averaged over contents."""

    full_state_update = False

    def __init__(self):
        super().__init__()
        self.add_state("right", torch.zeros(()), dist_reduce_fx="sum")
        self.add_state("pairs", torch.zeros(()), dist_reduce_fx="sum")

    def update(self, guess, truth):
        guessed = (guess[:, None] - guess[None]).sign()
        known = (truth[:, None] - truth[None]).sign()
        self.right += (guessed * known > 0).sum()
        self.pairs += (known != 0).sum()

    def compute(self):
        return self.right / self.pairs


class SoilData(L.LightningDataModule):
    def __init__(self, samples=9216, bands=256, batch_size=512):
        super().__init__()
        self.samples, self.bands, self.batch_size = samples, bands, batch_size

    def setup(self, stage=None):
        gen = torch.Generator().manual_seed(17)
        contents = torch.rand(self.samples, len(CONTENTS), generator=gen)
        waves = torch.linspace(0, 1, self.bands)
        centres, widths = torch.rand(2, len(CONTENTS), 4, 1, generator=gen)
        peaks = torch.exp(-(((waves - centres) / (0.01 + 0.05 * widths)) ** 2)).sum(1)
        spectra = (contents @ peaks).exp().neg() + 0.02 * torch.randn(self.samples, self.bands, generator=gen)
        held = self.samples // 8
        self.train_set = TensorDataset(spectra[held:], contents[held:])
        self.val_set = TensorDataset(spectra[:held], contents[:held])

    def loader(self, data, order):
        """Takes the rows of a whole batch from the tensors at once."""
        return DataLoader(data, sampler=BatchSampler(order, self.batch_size, drop_last=False), batch_size=None)

    def train_dataloader(self):
        return self.loader(self.train_set, RandomSampler(self.train_set))

    def val_dataloader(self):
        return self.loader(self.val_set, SequentialSampler(self.val_set))


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
        self.train_order, self.val_order, self.val_error = PairsInOrder(), PairsInOrder(), MeanAbsoluteError()

    def forward(self, spectra):
        return self.body(spectra.unsqueeze(1))

    def training_step(self, batch, batch_idx):
        spectra, contents = batch
        guess = self(spectra)
        loss = F.mse_loss(guess, contents)
        self.log_dict({"train_loss": loss, "train_order": self.train_order(guess.detach(), contents)})
        return loss

    def on_train_epoch_end(self):
        self.log("train_order_epoch", self.train_order.compute())
        self.train_order.reset()

    def validation_step(self, batch, batch_idx):
        spectra, contents = batch
        guess = self(spectra)
        self.val_order.update(guess, contents)
        self.val_error.update(guess, contents)

    def on_validation_epoch_end(self):
        self.log_dict({"val_order": self.val_order, "val_error": self.val_error}, prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


def main():
    L.seed_everything(0)
    data, model = SoilData(), SpectraNet()
    model(torch.zeros(1, data.bands))
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(
            accelerator="cpu",
            max_epochs=11,
            logger=CSVLogger(folder),
            default_root_dir=folder,
            log_every_n_steps=10,
            enable_progress_bar=False,
            enable_checkpointing=False,
        )
        trainer.fit(model, datamodule=data)


if __name__ == "__main__":
    main()
