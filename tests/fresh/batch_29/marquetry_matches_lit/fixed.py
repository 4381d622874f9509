"""Embeddings of marquetry panels: panels of one workshop lie close together. Trained with Lightning."""

import argparse
import logging

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)


class WorkshopSampler(Sampler):
    """Batches of several panels each of several workshops."""

    def __init__(self, labels, workshops, panels, batches, seed):
        self.rows = [torch.nonzero(labels == label).squeeze(1) for label in labels.unique()]
        self.workshops, self.panels, self.batches = workshops, panels, batches
        self.generator = torch.Generator().manual_seed(seed)

    def __len__(self):
        return self.batches

    def __iter__(self):
        for _ in range(self.batches):
            chosen = torch.randperm(len(self.rows), generator=self.generator)[: self.workshops]
            picks = []
            for workshop in chosen.tolist():
                rows = self.rows[workshop]
                picks.append(rows[torch.randperm(len(rows), generator=self.generator)[: self.panels]])
            yield torch.cat(picks)


class MultiSimilarityLoss(nn.Module):
    def __init__(self, alpha=2.0, beta=20.0, base=0.5):
        super().__init__()
        self.alpha, self.beta, self.base = alpha, beta, base

    def forward(self, embeddings, labels):
        similarity = embeddings @ embeddings.T - self.base
        same = labels[:, None] == labels[None, :]
        own = torch.eye(len(labels), dtype=torch.bool)
        near = torch.exp(-self.alpha * similarity) * (same & ~own)
        far = torch.exp(self.beta * similarity) * ~same
        pull = torch.log1p(near.sum(dim=1)) / self.alpha
        push = torch.log1p(far.sum(dim=1)) / self.beta
        return (pull + push).mean()


class PanelEncoder(nn.Module):
    def __init__(self, width, size):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, stride=2, padding=1),
            nn.GroupNorm(4, width),
            nn.SiLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.GroupNorm(4, 2 * width),
            nn.SiLU(),
            nn.Conv2d(2 * width, 4 * width, 3, stride=2, padding=1),
            nn.SiLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
        )
        self.project = nn.Linear(16 * width, size)

    def forward(self, panels):
        return F.normalize(self.project(self.features(panels)), dim=1)


class MatchModule(L.LightningModule):
    def __init__(self, width=32, size=64, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = PanelEncoder(width, size)
        self.loss = MultiSimilarityLoss()

    def training_step(self, batch, batch_idx):
        panels, labels = batch
        loss = self.loss(self.encoder(panels), labels)
        self.log("loss", loss, on_step=False, on_epoch=True, batch_size=len(labels))
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


def marquetry(workshops, panels, size, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(workshops).repeat_interleave(panels)
    patterns = torch.randn(workshops, 1, size, size, generator=generator)
    patterns = F.avg_pool2d(patterns, 5, stride=1, padding=2)
    shifts = torch.randint(-4, 5, (len(labels),), generator=generator)
    images = torch.stack([patterns[label].roll(int(s), dims=2) for label, s in zip(labels, shifts)])
    return TensorDataset(images + 0.1 * torch.randn(images.shape, generator=generator), labels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workshops", type=int, default=60)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batches", type=int, default=70)
    parser.add_argument("--seed", type=int, default=2)
    args = parser.parse_args()
    L.seed_everything(args.seed, verbose=False)
    dataset = marquetry(args.workshops, 16, 40, args.seed)
    sampler = WorkshopSampler(dataset.tensors[1], 12, 4, args.batches, args.seed)
    loader = DataLoader(dataset, sampler=sampler, batch_size=None)
    trainer = L.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(MatchModule(), loader)
    print(f"loss {trainer.callback_metrics['loss']:.4f}")


if __name__ == "__main__":
    main()
