"""Grades of biopsies from the features of their tiles: attention pooling, trained by Lightning."""

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy, MulticlassAUROC

GRADES = 6
FEATURES = 96
TILES = 24


class BiopsyData(L.LightningDataModule):
    """Each biopsy is a bag of tiles, of which the worst few decide on the grade."""

    def __init__(self, biopsies: int = 16000, batch_size: int = 128, seed: int = 3):
        super().__init__()
        self.biopsies = biopsies
        self.batch_size = batch_size
        self.seed = seed

    def setup(self, stage: str) -> None:
        generator = torch.Generator().manual_seed(self.seed)
        grades = torch.randint(0, GRADES, (self.biopsies,), generator=generator)
        directions = torch.randn(GRADES, FEATURES, generator=generator)
        bags = torch.randn(self.biopsies, TILES, FEATURES, generator=generator)
        bags[:, :3] += 0.3 * directions[grades][:, None]
        cut = self.biopsies - 1600
        self.train_set = TensorDataset(bags[:cut], grades[:cut])
        self.valid_set = TensorDataset(bags[cut:], grades[cut:])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=self.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.valid_set, batch_size=400)


class GatedAttention(nn.Module):
    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.value = nn.Linear(width, hidden)
        self.gate = nn.Linear(width, hidden)
        self.score = nn.Linear(hidden, 1)

    def forward(self, tiles):
        weights = self.score(torch.tanh(self.value(tiles)) * torch.sigmoid(self.gate(tiles)))
        return (torch.softmax(weights, dim=1) * tiles).sum(dim=1)


class Grader(nn.Module):
    def __init__(self, width: int = 128):
        super().__init__()
        self.embed = nn.Sequential(
            nn.Linear(FEATURES, width), nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.pool = GatedAttention(width, 64)
        self.head = nn.Linear(width, GRADES)

    def forward(self, bags):
        return self.head(self.pool(self.embed(bags)))


class GradingModule(L.LightningModule):
    def __init__(self, lr: float = 1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.model = Grader()
        self.train_auc = MulticlassAUROC(num_classes=GRADES, validate_args=False)
        self.valid_auc = MulticlassAUROC(num_classes=GRADES, validate_args=False)
        self.valid_accuracy = MulticlassAccuracy(num_classes=GRADES)

    def forward(self, bags):
        return self.model(bags)

    def training_step(self, batch, batch_idx):
        bags, grades = batch
        logits = self(bags)
        loss = F.cross_entropy(logits, grades)
        self.train_auc.update(logits.detach().softmax(dim=-1), grades)
        self.log("train/loss", loss, on_step=False, on_epoch=True)
        return loss

    def on_train_epoch_end(self):
        self.log("train/auc", self.train_auc.compute())
        self.train_auc.reset()

    def validation_step(self, batch, batch_idx):
        bags, grades = batch
        logits = self(bags)
        self.valid_auc.update(logits.softmax(dim=-1), grades)
        self.valid_accuracy.update(logits, grades)
        self.log("valid/loss", F.cross_entropy(logits, grades))

    def on_validation_epoch_end(self):
        self.log("valid/auc", self.valid_auc.compute())
        self.log("valid/accuracy", self.valid_accuracy.compute())
        self.valid_auc.reset()
        self.valid_accuracy.reset()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-4)


def main() -> None:
    L.seed_everything(11)
    module = GradingModule()
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=3,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(module, datamodule=BiopsyData())
    figures = {name: round(float(value), 4) for name, value in trainer.callback_metrics.items()}
    print(figures)


if __name__ == "__main__":
    main()
