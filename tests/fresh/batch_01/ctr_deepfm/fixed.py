"""DeepFM on click logs: train.py as in a small recommender repository."""

import argparse
import logging
import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("deepfm")


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=120_000)
    parser.add_argument("--fields", type=int, default=22)
    parser.add_argument("--vocab", type=int, default=600)
    parser.add_argument("--embed-dim", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=2020)
    return parser.parse_args()


def make_log(args):
    """Click log with a hidden linear preference per category."""
    rng = np.random.default_rng(args.seed)
    cats = rng.zipf(1.3, size=(args.rows, args.fields)) % args.vocab
    dense = rng.standard_normal((args.rows, 8)).astype(np.float32)
    taste = rng.standard_normal((args.fields, args.vocab)) * 0.4
    score = taste[np.arange(args.fields), cats].sum(1) + dense[:, 0]
    click = (score + rng.standard_normal(args.rows) > 0).astype(np.float32)
    return torch.from_numpy(cats).long(), torch.from_numpy(dense), torch.from_numpy(click)


class FeatureEmbedding(nn.Module):
    def __init__(self, fields, vocab, dim):
        super().__init__()
        self.table = nn.Embedding(fields * vocab, dim)
        self.register_buffer("offsets", torch.arange(fields) * vocab)
        nn.init.xavier_uniform_(self.table.weight)

    def forward(self, x):
        return self.table(x + self.offsets)


class DeepFM(nn.Module):
    def __init__(self, fields, vocab, dim, hidden=(320, 160)):
        super().__init__()
        self.linear = FeatureEmbedding(fields, vocab, 1)
        self.embed = FeatureEmbedding(fields, vocab, dim)
        width, layers = fields * dim + 8, []
        for out in hidden:
            layers += [nn.Linear(width, out), nn.BatchNorm1d(out), nn.ReLU(), nn.Dropout(0.2)]
            width = out
        self.mlp = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, cats, dense):
        e = self.embed(cats)
        fm = 0.5 * (e.sum(1) ** 2 - (e**2).sum(1)).sum(1)
        deep = self.mlp(torch.cat([e.flatten(1), dense], 1)).squeeze(1)
        return self.linear(cats).sum((1, 2)) + fm + deep


def auc(scores, labels):
    order = torch.argsort(scores)
    ranks = torch.empty_like(order, dtype=torch.float)
    ranks[order] = torch.arange(1, len(scores) + 1, dtype=torch.float)
    pos = labels > 0.5
    n, m = pos.sum(), (~pos).sum()
    return ((ranks[pos].sum() - n * (n + 1) / 2) / (n * m)).item()


@torch.no_grad()
def evaluate(model, cats, dense, labels):
    model.eval()
    scores = torch.cat([model(c, d) for c, d in zip(cats.split(4096), dense.split(4096))])
    return auc(scores, labels)


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    cats, dense, click = make_log(args)
    cut = int(0.95 * args.rows)
    train_set = TensorDataset(cats[:cut], dense[:cut], click[:cut])
    batches = BatchSampler(RandomSampler(train_set), args.batch_size, drop_last=True)
    train_loader = DataLoader(train_set, sampler=batches, batch_size=None)
    model = DeepFM(args.fields, args.vocab, args.embed_dim)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=1e-6)
    criterion = nn.BCEWithLogitsLoss()
    with tempfile.TemporaryDirectory() as out:
        best = 0.0
        for epoch in range(args.epochs):
            model.train()
            for step, (c, d, y) in enumerate(train_loader):
                optimizer.zero_grad()
                loss = criterion(model(c, d), y)
                loss.backward()
                optimizer.step()
                if step % 100 == 0:
                    log.info("epoch %d step %d loss %.4f", epoch, step, loss.item())
            score = evaluate(model, cats[cut:], dense[cut:], click[cut:])
            log.info("epoch %d valid auc %.4f", epoch, score)
            if score > best:
                best = score
                torch.save(model.state_dict(), os.path.join(out, "best.pt"))


if __name__ == "__main__":
    main()
