"""Who earns more? A tabular transformer on a census, trained in folds; out-of-fold predictions are kept."""

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
import torch.nn.functional as F


class CFG:
    rows = 4500
    folds = 3
    epochs = 3
    batch_size = 48
    width = 16
    depth = 2
    heads = 4
    lr = 2e-3
    seed = 42


SIZES = [3 + (7 * i) % 37 for i in range(36)]
NUMBERS = 4


def read_census():
    rng = np.random.default_rng(CFG.seed)
    df = pd.DataFrame({f"cat_{i}": rng.integers(0, size, CFG.rows) for i, size in enumerate(SIZES)})
    for i in range(NUMBERS):
        df[f"num_{i}"] = rng.normal(size=CFG.rows)
    effects = [rng.normal(0, 0.4, size) for size in SIZES]
    score = sum(effect[df[f"cat_{i}"]] for i, effect in enumerate(effects)) + df.filter(like="num_").sum(axis=1)
    df["target"] = (score + rng.logistic(size=CFG.rows) > 0).astype(int)
    df["fold"] = rng.permutation(CFG.rows) % CFG.folds
    return df


class Tokens(nn.Module):
    """One vector per column: looked up for categories, scaled for numbers."""

    def __init__(self, sizes, numbers, width):
        super().__init__()
        self.table = nn.Embedding(sum(sizes), width)
        self.register_buffer("offsets", torch.tensor([0, *sizes[:-1]]).cumsum(0))
        self.scale = nn.Parameter(0.1 * torch.randn(numbers, width))
        self.shift = nn.Parameter(0.1 * torch.randn(numbers, width))
        self.first = nn.Parameter(0.1 * torch.randn(1, 1, width))

    def forward(self, categories, numbers):
        looked_up = self.table(categories + self.offsets)
        scaled = numbers.unsqueeze(2) * self.scale + self.shift
        return torch.cat([self.first.expand(len(numbers), -1, -1), looked_up, scaled], dim=1)


class TabularTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = Tokens(SIZES, NUMBERS, CFG.width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(CFG.width, CFG.heads, 2 * CFG.width, 0.0, "gelu", batch_first=True)
            for _ in range(CFG.depth)
        )
        self.head = nn.Linear(CFG.width, 1)

    def forward(self, categories, numbers):
        x = self.tokens(categories, numbers)
        for layer in self.layers:
            x = layer(x)
        return self.head(x[:, 0]).squeeze(1)


def to_tensors(df):
    categories = torch.from_numpy(df.filter(like="cat_").to_numpy(np.int64, copy=True))
    numbers = torch.from_numpy(df.filter(like="num_").to_numpy(np.float32, copy=True))
    return categories, numbers, torch.from_numpy(df["target"].to_numpy(np.float32, copy=True))


def train_epoch(model, data, optimizer, scheduler):
    model.train()
    total, count = torch.zeros(()), 0
    for rows in torch.randperm(len(data[0])).split(CFG.batch_size):
        categories, numbers, target = (part[rows] for part in data)
        loss = F.binary_cross_entropy_with_logits(model(categories, numbers), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        scheduler.step()
        total += loss.detach()
        count += 1
    return total.item() / count


@torch.inference_mode()
def predict(model, data):
    model.eval()
    parts = zip(data[0].split(4 * CFG.batch_size), data[1].split(4 * CFG.batch_size))
    return torch.cat([model(categories, numbers).sigmoid() for categories, numbers in parts]).numpy()


def train_fold(df, fold):
    train, valid = to_tensors(df[df.fold != fold]), to_tensors(df[df.fold == fold])
    model = TabularTransformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=CFG.lr, weight_decay=1e-4, fused=True)
    steps = CFG.epochs * -(-len(train[0]) // CFG.batch_size)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, CFG.lr, total_steps=steps)
    for epoch in range(CFG.epochs):
        loss = train_epoch(model, train, optimizer, scheduler)
        print(f"fold {fold} epoch {epoch} loss {loss:.4f}")
    return predict(model, valid)


def main():
    torch.manual_seed(CFG.seed)
    df = read_census()
    df["oof"] = 0.0
    for fold in range(CFG.folds):
        df.loc[df.fold == fold, "oof"] = train_fold(df, fold)
    print(f"accuracy {((df.oof > 0.5) == df.target).mean():.4f}")


if __name__ == "__main__":
    main()
