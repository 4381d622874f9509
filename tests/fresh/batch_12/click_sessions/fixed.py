"""Next-click prediction in shop sessions with a recurrent network over session-parallel mini-batches."""

import numpy as np
import pandas as pd
import torch
import torch.nn as nn


def click_log(sessions, items, seed):
    """A table of clicks: every session walks around one department of the shop."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, 20, sessions)
    department = np.repeat(rng.integers(0, items // 40, sessions), lengths)
    clicks = (department * 40 + rng.geometric(0.12, lengths.sum())) % items
    return pd.DataFrame(
        {"session": np.repeat(np.arange(sessions), lengths), "item": clicks, "time": np.arange(lengths.sum())}
    )


class SessionLoader:
    """Walks through many sessions side by side; says where a new session starts so that the state can be reset."""

    def __init__(self, log, batch_size):
        log = log.sort_values(["session", "time"])
        self.items = log["item"].to_numpy()
        self.offsets = np.concatenate([[0], log.groupby("session").size().cumsum().to_numpy()])
        self.batch_size = batch_size

    def __iter__(self):
        order = np.random.permutation(len(self.offsets) - 1)
        active = order[: self.batch_size].copy()
        following = self.batch_size
        position, end = self.offsets[active].copy(), self.offsets[active + 1].copy()
        fresh = np.ones(self.batch_size, dtype=bool)
        while True:
            steps = int((end - position).min()) - 1
            for _ in range(steps):
                inputs, targets = self.items[position], self.items[position + 1]
                yield torch.from_numpy(inputs), torch.from_numpy(targets), torch.from_numpy(fresh.copy())
                fresh[:] = False
                position += 1
            done = np.flatnonzero(end - position <= 1)
            if following + len(done) > len(order):
                return
            active[done] = order[following : following + len(done)]
            following += len(done)
            position[done], end[done] = self.offsets[active[done]], self.offsets[active[done] + 1]
            fresh[done] = True


class SessionGRU(nn.Module):
    def __init__(self, items, hidden, layers=1, dropout=0.1):
        super().__init__()
        self.items, self.hidden, self.layers = items, hidden, layers
        self.embed = nn.Embedding(items, hidden)
        self.gru = nn.GRU(hidden, hidden, layers)
        self.drop = nn.Dropout(dropout)
        self.out = nn.Linear(hidden, items)

    def forward(self, inputs, state):
        output, state = self.gru(self.embed(inputs)[None], state)
        return self.out(self.drop(output[0])), state

    def start(self, batch):
        return torch.zeros(self.layers, batch, self.hidden)


def top1_max(scores, targets):
    """Ranking loss against the other targets of the batch, weighted by how high they score."""
    sampled = scores[:, targets]
    itself = torch.eye(len(targets), dtype=torch.bool)
    difference = sampled - sampled.diagonal()[:, None]
    weights = sampled.masked_fill(itself, -1e9).softmax(dim=1)
    return (weights * (difference.sigmoid() + sampled.square().sigmoid())).sum(1).mean()


class Trainer:
    def __init__(self, model, optimizer, batch_size):
        self.model, self.optimizer, self.batch_size = model, optimizer, batch_size

    def epoch(self, loader, limit):
        self.model.train()
        state = self.model.start(self.batch_size)
        total, count = torch.zeros(()), 0
        for inputs, targets, fresh in loader:
            state = state.detach().masked_fill(fresh[None, :, None], 0)
            scores, state = self.model(inputs, state)
            loss = top1_max(scores, targets)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
            count += 1
            if count == limit:
                break
        return total.item() / count


@torch.no_grad()
def recall(model, loader, at=20, limit=40):
    model.eval()
    state, hits, seen = model.start(loader.batch_size), 0, 0
    for number, (inputs, targets, fresh) in enumerate(loader):
        scores, state = model(inputs, state.masked_fill(fresh[None, :, None], 0))
        hits += (scores.topk(at).indices == targets[:, None]).any(1).sum().item()
        seen += len(targets)
        if number + 1 == limit:
            break
    return hits / seen


def main():
    torch.manual_seed(40)
    np.random.seed(40)
    items, batch_size = 4000, 64
    train = SessionLoader(click_log(6000, items, seed=40), batch_size)
    valid = SessionLoader(click_log(800, items, seed=41), batch_size)
    model = SessionGRU(items, hidden=100)
    trainer = Trainer(model, torch.optim.Adagrad(model.parameters(), lr=0.05), batch_size)
    for epoch in range(2):
        loss = trainer.epoch(train, limit=400)
        print(f"epoch {epoch} loss {loss:.4f} recall@20 {recall(model, valid):.3f}")


if __name__ == "__main__":
    main()
