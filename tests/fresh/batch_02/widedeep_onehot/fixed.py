"""Wide and deep model for census-like rows with crossed columns."""

import tempfile

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn


def census(rows, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 90, rows),
            "hours": rng.integers(5, 80, rows),
            "education": rng.integers(0, 16, rows),
            "occupation": rng.integers(0, 60, rows),
            "city": rng.zipf(1.4, rows) % 400,
        }
    )
    frame["education_x_occupation"] = frame["education"] * 60 + frame["occupation"]
    frame["city_x_occupation"] = (frame["city"] * 7 + frame["occupation"]) % 1500
    score = 0.03 * frame["age"] + 0.2 * frame["education"] + 0.02 * frame["hours"] + frame["occupation"] % 5 * 0.4
    frame["income"] = (score + rng.normal(0, 1, rows) > score.median()).astype(np.float32)
    return frame


class WidePreprocessor:
    def __init__(self, columns):
        self.columns = columns

    def fit_transform(self, frame):
        offset, parts = 0, []
        for column in self.columns:
            codes, uniques = pd.factorize(frame[column])
            parts.append(codes + offset)
            offset += len(uniques)
        self.size = offset
        return torch.from_numpy(np.stack(parts, 1))


class Wide(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size
        self.weight = nn.Parameter(torch.zeros(size, 1))

    def forward(self, codes):
        return F.embedding(codes, self.weight).sum(1)


class DeepDense(nn.Module):
    def __init__(self, sizes, continuous, dim=12, hidden=(128, 64)):
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(n, dim) for n in sizes)
        self.norm = nn.BatchNorm1d(continuous)
        layers, last = [], dim * len(sizes) + continuous
        for width in hidden:
            layers += [nn.Linear(last, width), nn.ReLU(), nn.Dropout(0.1)]
            last = width
        self.dense = nn.Sequential(*layers, nn.Linear(last, 1))

    def forward(self, cats, conts):
        parts = [emb(cats[:, i]) for i, emb in enumerate(self.embeddings)]
        return self.dense(torch.cat([*parts, self.norm(conts)], 1))


class WideDeep(nn.Module):
    def __init__(self, wide, deep):
        super().__init__()
        self.wide, self.deep = wide, deep

    def forward(self, x):
        return (self.wide(x["wide"]) + self.deep(x["cats"], x["conts"])).squeeze(1)


def fit(model, x, y, n_epochs, batch_size):
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    train = int(0.9 * len(y))
    for epoch in range(n_epochs):
        model.train()
        for step, idx in enumerate(torch.randperm(train).split(batch_size)):
            logits = model({k: v[idx] for k, v in x.items()})
            loss = F.binary_cross_entropy_with_logits(logits, y[idx])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 50 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
        model.eval()
        with torch.no_grad():
            hits = (model({k: v[train:] for k, v in x.items()}) > 0) == (y[train:] > 0.5)
        print(f"epoch {epoch} valid accuracy {hits.float().mean().item():.3f}")


if __name__ == "__main__":
    torch.manual_seed(1)
    frame = census(60_000)
    prepare = WidePreprocessor(["education", "education_x_occupation", "city_x_occupation"])
    wide = prepare.fit_transform(frame)
    cats = torch.from_numpy(frame[["education", "occupation", "city"]].to_numpy())
    conts = torch.from_numpy(frame[["age", "hours"]].to_numpy(np.float32))
    inputs = {"wide": wide, "cats": cats, "conts": conts}
    model = WideDeep(Wide(prepare.size), DeepDense([16, 60, 400], 2))
    fit(model, inputs, torch.from_numpy(frame["income"].to_numpy()), n_epochs=2, batch_size=128)
    with tempfile.TemporaryFile() as file:
        torch.save(model.state_dict(), file)
