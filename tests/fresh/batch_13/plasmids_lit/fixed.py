"""A codon language model of plasmids, trained with Lightning."""

import math
import tempfile
from dataclasses import dataclass

import lightning as L
import torch
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    codons: int = 68
    length: int = 96
    width: int = 96
    layers: int = 2
    heads: int = 4
    batch_size: int = 16
    lr: float = 1e-3


class PlasmidDataset(Dataset):
    def __init__(self, size, config, seed):
        generator = torch.Generator().manual_seed(seed)
        genes = torch.randint(0, config.codons, (40, 24), generator=torch.Generator().manual_seed(0))
        picked = torch.randint(0, 40, (size, config.length // 24 + 1), generator=generator)
        self.sequences = genes[picked].flatten(1)[:, : config.length + 1]

    def __len__(self):
        return len(self.sequences)

    def __getitem__(self, index):
        return self.sequences[index]


class PlasmidData(L.LightningDataModule):
    def __init__(self, config):
        super().__init__()
        self.config = config

    def setup(self, stage=None):
        self.train_set = PlasmidDataset(2400, self.config, seed=1)
        self.val_set = PlasmidDataset(256, self.config, seed=2)

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.config.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=4 * self.config.batch_size)


class CodonModel(L.LightningModule):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.codons, config.width)
        self.position = nn.Parameter(torch.randn(config.length, config.width) * 0.02)
        layer = nn.TransformerEncoderLayer(config.width, config.heads, 4 * config.width, 0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, config.layers)
        self.head = nn.Linear(config.width, config.codons)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(config.length))

    def step(self, batch):
        h = self.embed(batch[:, :-1]) + self.position
        logits = self.head(self.encoder(h, mask=self.mask, is_causal=True))
        return F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())

    def training_step(self, batch, batch_idx):
        loss = self.step(batch)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        loss = self.step(batch)
        self.log_dict({"val_loss": loss, "val_ppl": torch.exp(loss.clamp(max=math.log(1e4)))})

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.config.lr)


def main():
    L.seed_everything(5)
    config = Config()
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(
            accelerator="cpu",
            max_epochs=1,
            val_check_interval=1.0,
            callbacks=[EarlyStopping("val_loss", patience=50)],
            logger=CSVLogger(folder),
            enable_progress_bar=False,
            enable_checkpointing=False,
        )
        trainer.fit(CodonModel(config), datamodule=PlasmidData(config))


if __name__ == "__main__":
    main()
