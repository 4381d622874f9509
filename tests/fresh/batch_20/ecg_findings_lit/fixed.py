"""Findings in twelve-lead electrocardiograms: many labels at once, a small 1-D ResNet, Lightning."""

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MultilabelAUROC

LEADS, SAMPLES, FINDINGS = 12, 500, 44


def simulate(n, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.linspace(0, 5, SAMPLES)
    labels = (torch.rand(n, FINDINGS, generator=g) < 0.15).float()
    rate = 1 + 0.4 * torch.rand(n, 1, 1, generator=g)
    beat = torch.exp(-60 * (torch.remainder(rate * t, 1) - 0.5) ** 2)
    shift = (labels @ torch.randn(FINDINGS, LEADS, generator=g)).unsqueeze(-1)
    signal = beat * (1 + 0.3 * shift) + 0.05 * torch.randn(n, LEADS, SAMPLES, generator=g)
    return TensorDataset(signal, labels)


class ECGDataModule(L.LightningDataModule):
    def __init__(self, batch_size=32):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage):
        self.train_set, self.val_set = simulate(1920, 0), simulate(192, 1)

    def train_dataloader(self):
        return DataLoader(self.train_set, self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, self.batch_size)


class ResidualBlock(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.conv1 = nn.Conv1d(c_in, c_out, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm1d(c_out)
        self.conv2 = nn.Conv1d(c_out, c_out, 7, padding=3, bias=False)
        self.bn2 = nn.BatchNorm1d(c_out)
        self.skip = nn.Conv1d(c_in, c_out, 1, stride=2)

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + self.skip(x))


class LitFindings(L.LightningModule):
    def __init__(self, lr=1e-3):
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(
            ResidualBlock(LEADS, 24), ResidualBlock(24, 32), ResidualBlock(32, 48), nn.AdaptiveAvgPool1d(1),
            nn.Flatten(), nn.Linear(48, FINDINGS),
        )  # fmt: skip
        self.criterion = nn.BCEWithLogitsLoss()
        self.train_auc = MultilabelAUROC(FINDINGS)
        self.val_auc = MultilabelAUROC(FINDINGS)

    def training_step(self, batch, batch_idx):
        signal, labels = batch
        logits = self.net(signal)
        loss = self.criterion(logits, labels)
        self.train_auc.update(logits.sigmoid().detach(), labels.int())
        self.log_dict({"train_loss": loss, "train_auc": self.train_auc}, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        signal, labels = batch
        logits = self.net(signal)
        self.val_auc.update(logits.sigmoid(), labels.int())
        self.log("val_loss", self.criterion(logits, labels))
        self.log("val_auc", self.val_auc, on_epoch=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


def main():
    L.seed_everything(0)
    trainer = L.Trainer(
        max_epochs=4,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(LitFindings(), datamodule=ECGDataModule())
    print({name: round(value.item(), 4) for name, value in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()
