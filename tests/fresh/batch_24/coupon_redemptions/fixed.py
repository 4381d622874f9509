"""Predict whether a customer redeems a coupon: embeddings, a cross layer and a deep tower."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from tqdm import tqdm


@dataclass
class Config:
    fields: list[int] = field(default_factory=lambda: [20000, 5000, 800, 300, 60, 24, 7, 12])
    numeric: int = 13
    dim: int = 16
    hidden: tuple[int, ...] = (256, 128)
    rows: int = 80_000
    batch_size: int = 512
    epochs: int = 4
    lr: float = 1e-3
    seed: int = 5


class Redemptions:
    """All impressions in memory, served in shuffled batches."""

    def __init__(self, config: Config, rows: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.codes = torch.stack([torch.randint(0, n, (rows,), generator=generator) for n in config.fields], dim=1)
        self.numeric = torch.randn(rows, config.numeric, generator=generator)
        signal = self.numeric[:, 0] + 0.5 * self.numeric[:, 1] * self.numeric[:, 2] + (self.codes[:, 4] % 5 - 2) * 0.4
        noise = torch.rand(rows, generator=generator)
        self.labels = (torch.sigmoid(signal - 1.0) > noise).float()
        self.generator = generator
        self.batch_size = config.batch_size

    def __len__(self) -> int:
        return len(self.labels) // self.batch_size

    def __iter__(self):
        order = torch.randperm(len(self.labels), generator=self.generator)
        for i in range(len(self)):
            rows = order[i * self.batch_size : (i + 1) * self.batch_size]
            yield self.codes[rows], self.numeric[rows], self.labels[rows]


class CouponNet(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        offsets = torch.tensor([0, *config.fields[:-1]]).cumsum(0)
        self.register_buffer("offsets", offsets)
        self.embedding = nn.Embedding(sum(config.fields), config.dim, sparse=True)
        width = len(config.fields) * config.dim + config.numeric
        self.cross = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        layers: list[nn.Module] = []
        for inputs, outputs in zip((width, *config.hidden[:-1]), config.hidden, strict=True):
            layers += [nn.Linear(inputs, outputs), nn.ReLU(inplace=True), nn.Dropout(0.1)]
        self.deep = nn.Sequential(*layers)
        self.out = nn.Linear(width + config.hidden[-1], 1)

    def forward(self, codes: torch.Tensor, numeric: torch.Tensor) -> torch.Tensor:
        base = torch.cat([self.embedding(codes + self.offsets).flatten(1), numeric], dim=1)
        crossed = base
        for layer in self.cross:
            crossed = base * layer(crossed) + crossed
        return self.out(torch.cat([crossed, self.deep(base)], dim=1)).squeeze(1)


def roc_auc(scores: np.ndarray, labels: np.ndarray) -> float:
    """The area under the ROC curve from the ranks of the scores."""
    ranks = np.empty(len(scores))
    ranks[np.argsort(scores, kind="stable")] = np.arange(1, len(scores) + 1)
    positives = labels.sum()
    negatives = len(labels) - positives
    if positives == 0 or negatives == 0:
        return float("nan")
    return float((ranks[labels == 1].sum() - positives * (positives + 1) / 2) / (positives * negatives))


class Trainer:
    def __init__(self, model: CouponNet, config: Config) -> None:
        self.model = model
        dense = [p for name, p in model.named_parameters() if not name.startswith("embedding")]
        self.optimizers = [
            torch.optim.SparseAdam(model.embedding.parameters(), lr=config.lr),
            torch.optim.AdamW(dense, lr=config.lr),
        ]
        self.criterion = nn.BCEWithLogitsLoss()

    def step(self, codes: torch.Tensor, numeric: torch.Tensor, labels: torch.Tensor) -> tuple[float, torch.Tensor]:
        logits = self.model(codes, numeric)
        loss = self.criterion(logits, labels)
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        return loss.item(), logits.detach()

    def epoch(self, data: Redemptions, number: int) -> None:
        scores, labels, losses = [], [], []
        bar = tqdm(data, desc=f"epoch {number}", mininterval=1.0)
        for codes, numeric, target in bar:
            loss, logits = self.step(codes, numeric, target)
            losses.append(loss)
            scores.append(logits.numpy())
            labels.append(target.numpy())
            bar.set_postfix(loss=f"{loss:.4f}", refresh=False)
        auc = roc_auc(np.concatenate(scores), np.concatenate(labels))
        print(f"epoch {number}: loss {np.mean(losses):.4f}, auc {auc:.4f}")


def main() -> None:
    config = Config()
    torch.manual_seed(config.seed)
    data = Redemptions(config, config.rows, config.seed)
    trainer = Trainer(CouponNet(config), config)
    for number in range(config.epochs):
        trainer.epoch(data, number)


if __name__ == "__main__":
    main()
