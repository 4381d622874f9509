"""Predict clicks on adverts from hashed features; Lightning and torchmetrics."""

import tempfile

import lightning as L
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import BinaryAUROC

FIELDS, BUCKETS = 12, 2000


def make_impressions(size, seed):
    generator = torch.Generator().manual_seed(seed)
    fields = torch.randint(0, BUCKETS, (size, FIELDS), generator=generator)
    weight = torch.randn(FIELDS, BUCKETS, generator=torch.Generator().manual_seed(99))
    score = weight[torch.arange(FIELDS), fields].sum(1) / FIELDS**0.5
    clicks = (torch.rand(size, generator=generator) < torch.sigmoid(2 * score - 1)).long()
    return TensorDataset(fields, clicks)


class ClickModel(L.LightningModule):
    def __init__(self, width=16, hidden=256, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.embed = nn.Embedding(FIELDS * BUCKETS, width)
        self.register_buffer("offsets", torch.arange(FIELDS) * BUCKETS)
        self.mlp = nn.Sequential(
            nn.Linear(FIELDS * width, hidden), nn.ReLU(), nn.Dropout(0.1),
            nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1),
        )  # fmt: skip
        self.train_auroc = BinaryAUROC()
        self.val_auroc = BinaryAUROC()

    def forward(self, fields):
        return self.mlp(self.embed(fields + self.offsets).flatten(1)).squeeze(1)

    def training_step(self, batch, batch_idx):
        fields, clicks = batch
        logits = self(fields)
        loss = F.binary_cross_entropy_with_logits(logits, clicks.float())
        self.train_auroc.update(logits.detach().sigmoid(), clicks)
        self.log("train_loss", loss)
        self.log("train_auroc", self.train_auroc.compute())
        return loss

    def on_train_epoch_end(self):
        self.train_auroc.reset()

    def validation_step(self, batch, batch_idx):
        fields, clicks = batch
        self.val_auroc.update(self(fields).sigmoid(), clicks)

    def on_validation_epoch_end(self):
        self.log("val_auroc", self.val_auroc.compute())
        self.val_auroc.reset()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


def main():
    L.seed_everything(0)
    train = DataLoader(make_impressions(90_000, 1), batch_size=None, sampler=batches(90_000, 512))
    val = DataLoader(make_impressions(8192, 2), batch_size=None, sampler=batches(8192, 1024))
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(
            accelerator="cpu",
            max_epochs=4,
            logger=CSVLogger(folder),
            enable_progress_bar=False,
            enable_checkpointing=False,
        )
        trainer.fit(ClickModel(), train, val)


def batches(size, batch_size):
    order = torch.utils.data.RandomSampler(range(size))
    return torch.utils.data.BatchSampler(order, batch_size, drop_last=True)


if __name__ == "__main__":
    main()
