"""Default of loans from a CSV of applications: a wide MLP, as for a tabular Kaggle competition."""

import os
import tempfile

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

SEED = 42
N_ROWS, N_FEATURES = 14000, 60
BATCH_SIZE, EPOCHS, LR = 128, 2, 1e-3


def write_csv(path):
    rng = np.random.default_rng(SEED)
    x = rng.normal(size=(N_ROWS, N_FEATURES)).round(4)
    logit = x[:, :12] @ rng.normal(size=12) + 0.8 * x[:, 3] * x[:, 7]
    df = pd.DataFrame(x, columns=[f"feat_{i:02d}" for i in range(N_FEATURES)])
    df["amount"] = rng.integers(500, 40000, N_ROWS)
    df["TARGET"] = (logit + rng.normal(size=N_ROWS) > 1).astype(int)
    df.to_csv(path, index=False)


class LoanDataset(Dataset):
    def __init__(self, df, features, target="TARGET"):
        self.df = df.reset_index(drop=True)
        self.features = features
        self.target = target

    def __len__(self):
        return len(self.df)

    def __getitem__(self, idx):
        row = self.df.iloc[idx]
        x = torch.tensor(row[self.features].to_numpy(dtype=np.float32))
        y = torch.tensor(row[self.target], dtype=torch.float32)
        return x, y


class TabularNet(nn.Module):
    def __init__(self, n_in, hidden=2048, p=0.1):
        super().__init__()
        self.net = nn.Sequential(
            nn.BatchNorm1d(n_in),
            nn.Linear(n_in, hidden),
            nn.SiLU(),
            nn.Dropout(p),
            nn.Linear(hidden, hidden),
            nn.SiLU(),
            nn.Dropout(p),
            nn.Linear(hidden, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(1)


def train_fn(model, loader, criterion, optimizer):
    model.train()
    total = 0.0
    for step, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
        if step % 25 == 0:
            print(f"  step {step:4d} loss {loss.item():.4f}")
    return total / len(loader)


@torch.no_grad()
def valid_fn(model, loader):
    model.eval()
    hits, seen = 0, 0
    for x, y in loader:
        hits += ((model(x) > 0) == y.bool()).sum().item()
        seen += len(y)
    return hits / seen


def main():
    torch.manual_seed(SEED)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "train.csv")
        write_csv(path)
        df = pd.read_csv(path)
    features = [c for c in df.columns if c != "TARGET"]
    df["amount"] = (df["amount"] - df["amount"].mean()) / df["amount"].std()
    train_df = df.sample(frac=0.94, random_state=SEED)
    train_set, valid_set = LoanDataset(train_df, features), LoanDataset(df.drop(train_df.index), features)
    train_loader = DataLoader(train_set, batch_size=BATCH_SIZE, shuffle=True, drop_last=True)
    valid_loader = DataLoader(valid_set, batch_size=BATCH_SIZE)
    model = TabularNet(len(features))
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=1e-2, fused=True)
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(EPOCHS):
        loss = train_fn(model, train_loader, criterion, optimizer)
        print(f"Epoch {epoch + 1}/{EPOCHS} loss {loss:.4f} valid acc {valid_fn(model, valid_loader):.4f}")


if __name__ == "__main__":
    main()
