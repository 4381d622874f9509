"""Click-through rates from hashed categorical fields: a factorisation machine with a deep part."""

import os
import sys
import tempfile

import numpy as np
import pandas as pd
import torch
from torch import nn
from tqdm import tqdm

FIELDS, BUCKETS, DIM = 16, 500, 16
BATCH_SIZE, EPOCHS = 1024, 2


def write_log(path, rows, seed):
    """A log of impressions: hashed fields and whether there was a click."""
    rng = np.random.default_rng(seed)
    ids = (rng.pareto(1.2, (rows, FIELDS)) * 20).astype(np.int64) % BUCKETS
    taste = rng.normal(0, 0.6, (FIELDS, BUCKETS))
    logit = taste[np.arange(FIELDS), ids].sum(axis=1) - 1.5
    click = rng.random(rows) < 1 / (1 + np.exp(-logit))
    frame = pd.DataFrame(ids, columns=[f"C{i}" for i in range(FIELDS)])
    frame.insert(0, "click", click.astype(int))
    frame.to_csv(path, index=False)


def roc_auc(labels, scores):
    """Area under the ROC curve from the ranks of the scores."""
    order = np.argsort(scores, kind="stable")
    ranks = np.empty(len(scores))
    ranks[order] = np.arange(1, len(scores) + 1)
    positive = labels > 0.5
    n_pos = positive.sum()
    n_neg = len(labels) - n_pos
    if n_pos == 0 or n_neg == 0:
        return 0.5
    return (ranks[positive].sum() - n_pos * (n_pos + 1) / 2) / (n_pos * n_neg)


class DeepFM(nn.Module):
    def __init__(self, hidden=(256, 256)):
        super().__init__()
        self.register_buffer("offsets", torch.arange(FIELDS) * BUCKETS)
        self.embedding = nn.Embedding(FIELDS * BUCKETS, DIM)
        nn.init.normal_(self.embedding.weight, std=0.05)
        self.linear = nn.Embedding(FIELDS * BUCKETS, 1)
        layers, size = [], FIELDS * DIM
        for width in hidden:
            layers += [nn.Linear(size, width), nn.ReLU(), nn.Dropout(0.2)]
            size = width
        self.deep = nn.Sequential(*layers, nn.Linear(size, 1))

    def forward(self, ids):
        ids = ids + self.offsets
        x = self.embedding(ids)
        fm = 0.5 * (x.sum(dim=1).square() - x.square().sum(dim=1)).sum(dim=1)
        return self.linear(ids).sum(dim=(1, 2)) + fm + self.deep(x.flatten(1)).squeeze(1)


def run_epoch(model, ids, clicks, optimizer, epoch):
    model.train()
    criterion = nn.BCEWithLogitsLoss()
    all_labels, all_scores, losses = [], [], []
    batches = torch.randperm(len(ids)).split(BATCH_SIZE)
    bar = tqdm(batches, desc=f"epoch {epoch}", file=sys.stdout, mininterval=1.0)
    for rows in bar:
        label = clicks[rows]
        logits = model(ids[rows])
        loss = criterion(logits, label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        all_labels.append(label.numpy())
        all_scores.append(logits.detach().numpy())
        auc = roc_auc(np.concatenate(all_labels), np.concatenate(all_scores))
        bar.set_postfix(loss=f"{losses[-1]:.4f}", auc=f"{auc:.4f}")
    return np.mean(losses), auc


def main():
    torch.manual_seed(2014)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "train.csv")
        write_log(path, 150_000, seed=2014)
        frame = pd.read_csv(path)
    ids = torch.from_numpy(frame.drop(columns="click").to_numpy())
    clicks = torch.from_numpy(frame["click"].to_numpy(dtype=np.float32))
    model = DeepFM()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
    for epoch in range(EPOCHS):
        loss, auc = run_epoch(model, ids, clicks, optimizer, epoch)
        print(f"epoch {epoch}: logloss {loss:.4f} auc {auc:.4f}")


if __name__ == "__main__":
    main()
