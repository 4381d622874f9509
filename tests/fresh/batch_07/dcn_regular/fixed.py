"""Click prediction with a deep and cross network over hashed categories."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class CrossNet(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x0):
        x = x0
        for layer in self.layers:
            x = x0 * layer(x) + x
        return x


class DCN(nn.Module):
    def __init__(self, fields, buckets, dense, dim=16, l2_reg_embedding=1e-5):
        super().__init__()
        self.embedding_dict = nn.ModuleDict({f"C{i}": nn.Embedding(buckets, dim) for i in range(fields)})
        for embedding in self.embedding_dict.values():
            nn.init.normal_(embedding.weight, std=0.01)
        width = fields * dim + dense
        self.cross = CrossNet(width, 2)
        self.dnn = nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
        self.out = nn.Linear(width + 64, 1)
        self.l2_reg_embedding = l2_reg_embedding

    def forward(self, sparse, dense):
        embedded = [e(sparse[:, i]) for i, e in enumerate(self.embedding_dict.values())]
        x = torch.cat([*embedded, dense], dim=1)
        return self.out(torch.cat([self.cross(x), self.dnn(x)], 1)).squeeze(1)


class Clicks:
    """Log lines whose categories follow a power law."""

    def __init__(self, rows, fields, buckets, dense, seed):
        rng = np.random.default_rng(seed)
        sparse = np.minimum(rng.zipf(1.15, (rows, fields)) * np.arange(7, 7 + fields), 2**40) % buckets
        numbers = np.log1p(rng.exponential(3.0, (rows, dense))).astype(np.float32)
        score = np.sin(sparse[:, 0]) + np.cos(sparse[:, 1]) + 0.5 * numbers[:, 0] - 1.0
        self.sparse = torch.from_numpy(sparse.astype(np.int64))
        self.dense = torch.from_numpy(numbers)
        self.labels = torch.from_numpy((rng.random(rows) < 1 / (1 + np.exp(-score))).astype(np.float32))

    def batches(self, batch_size, generator):
        order = torch.randperm(len(self.labels), generator=generator)
        for rows in order.split(batch_size):
            yield self.sparse[rows], self.dense[rows], self.labels[rows]


def build_optimizer(model, lr):
    embeddings = list(model.embedding_dict.parameters())
    inside = {id(p) for p in embeddings}
    rest = [p for p in model.parameters() if id(p) not in inside]
    groups = [{"params": embeddings, "weight_decay": 2 * model.l2_reg_embedding}, {"params": rest}]
    return torch.optim.SGD(groups, lr=lr)


def fit(model, data, args):
    generator = torch.Generator().manual_seed(args.seed)
    optimizer = build_optimizer(model, args.lr)
    model.train()
    step = 0
    for epoch in range(args.epochs):
        for sparse, dense, label in data.batches(args.batch_size, generator):
            prediction = model(sparse, dense)
            loss = F.binary_cross_entropy_with_logits(prediction, label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 50 == 0:
                print(f"epoch {epoch} step {step}: log loss {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=204800)
    parser.add_argument("--fields", type=int, default=12)
    parser.add_argument("--buckets", type=int, default=20000)
    parser.add_argument("--batch_size", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1024)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    clicks = Clicks(args.rows, args.fields, args.buckets, dense=8, seed=args.seed)
    fit(DCN(args.fields, args.buckets, dense=8), clicks, args)
