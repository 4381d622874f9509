"""Tulip varieties in aerial crops of flower fields, trained with Lightning."""

import argparse

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MetricCollection
from torchmetrics.classification import (
    MulticlassAccuracy,
    MulticlassAUROC,
    MulticlassAveragePrecision,
    MulticlassF1Score,
)

VARIETIES = 20


def get_parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("--crops", type=int, default=3840)
    parser.add_argument("--size", type=int, default=48)
    parser.add_argument("--batch_size", type=int, default=48)
    parser.add_argument("--max_epochs", type=int, default=2)
    parser.add_argument("--width", type=int, default=24)
    parser.add_argument("--learning_rate", type=float, default=3e-3)
    return parser


class TulipData(L.LightningDataModule):
    def __init__(self, crops, size, batch_size):
        super().__init__()
        self.crops, self.size, self.batch_size = crops, size, batch_size

    def setup(self, stage=None):
        generator = torch.Generator().manual_seed(17)
        labels = torch.randint(0, VARIETIES, (self.crops,), generator=generator)
        palette = torch.rand(VARIETIES, 3, generator=generator)
        pitch = 2 + torch.arange(VARIETIES) % 5
        column = torch.arange(self.size)
        stripes = (column // pitch[labels][:, None] % 2).float()
        rows = stripes[:, None, None, :].expand(-1, 1, self.size, -1)
        colours = palette[labels][:, :, None, None]
        noise = torch.randn(self.crops, 3, self.size, self.size, generator=generator)
        self.train_set = TensorDataset(rows * colours + 0.4 * noise, labels)

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.batch_size, shuffle=True, drop_last=True)


class SeparableBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.depthwise = nn.Conv2d(inputs, inputs, 3, stride=stride, padding=1, groups=inputs, bias=False)
        self.pointwise = nn.Conv2d(inputs, outputs, 1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x):
        return F.relu(self.norm(self.pointwise(self.depthwise(x))), inplace=True)


def backbone(width):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        SeparableBlock(width, 2 * width, 1),
        SeparableBlock(2 * width, 4 * width, 2),
        SeparableBlock(4 * width, 4 * width, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


class TulipClassifier(L.LightningModule):
    def __init__(self, width, learning_rate):
        super().__init__()
        self.save_hyperparameters()
        self.backbone = backbone(width)
        self.classifier = nn.Linear(4 * width, VARIETIES)
        self.metrics = MetricCollection(
            {
                "acc": MulticlassAccuracy(VARIETIES),
                "f1": MulticlassF1Score(VARIETIES, average="macro"),
                "auroc": MulticlassAUROC(VARIETIES),
                "ap": MulticlassAveragePrecision(VARIETIES),
            },
            prefix="train_",
        )

    def forward(self, crops):
        return self.classifier(self.backbone(crops))

    def training_step(self, batch, batch_idx):
        crops, labels = batch
        logits = self(crops)
        loss = F.cross_entropy(logits, labels)
        scores = self.metrics(logits.detach().softmax(dim=1), labels)
        self.log_dict(scores, on_step=True, on_epoch=False)
        return loss

    def on_train_epoch_end(self):
        scores = self.metrics.compute()
        print({name: round(value.item(), 4) for name, value in scores.items()})
        self.metrics.reset()

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=self.hparams.learning_rate, momentum=0.9, nesterov=True)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=self.trainer.max_epochs)
        return [optimizer], [schedule]


def main():
    args = get_parser().parse_args()
    L.seed_everything(3)
    data = TulipData(args.crops, args.size, args.batch_size)
    model = TulipClassifier(args.width, args.learning_rate)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=args.max_epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, datamodule=data)


if __name__ == "__main__":
    main()
