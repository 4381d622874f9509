"""Click-through of the next item from a history of visits: a DLRM tower per visit, attention over the history."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

CONFIG = {
    "steps_in_history": 20,
    "dense": 8,
    "tables": [4000, 2500, 900, 60],
    "embedding": 16,
    "batch_size": 128,
    "iterations": 450,
    "lr": 0.05,
}


class VisitLog:
    """A generated log: for each user a walk through items; the label says whether the last item fits the walk."""

    def __init__(self, users, config, seed=5):
        rng = np.random.default_rng(seed)
        length = config["steps_in_history"] + 1
        taste = rng.integers(0, 50, users)
        self.dense = rng.normal(size=(users, length, config["dense"])).astype(np.float32)
        self.sparse = np.stack(
            [
                (taste[:, None] * (size // 50) + rng.integers(0, size, (users, length))) % size
                for size in config["tables"]
            ],
            axis=2,
        )
        fits = rng.random(users) < 0.5
        self.sparse[fits, -1] = self.sparse[fits, rng.integers(0, length - 1)]
        self.labels = fits.astype(np.float32)

    def batches(self, size, count, rng):
        for _ in range(count):
            rows = rng.integers(0, len(self.labels), size)
            yield (
                torch.from_numpy(self.dense[rows]),
                torch.from_numpy(self.sparse[rows]),
                torch.from_numpy(self.labels[rows]),
            )


class Tower(nn.Module):
    """DLRM: a bottom network for dense features, tables for sparse ones, dot interactions, a top network."""

    def __init__(self, config):
        super().__init__()
        width = config["embedding"]
        self.bottom = nn.Sequential(nn.Linear(config["dense"], 32), nn.ReLU(), nn.Linear(32, width), nn.ReLU())
        self.tables = nn.ModuleList(nn.EmbeddingBag(size, width, mode="sum") for size in config["tables"])
        fields = len(config["tables"]) + 1
        self.register_buffer("pairs", torch.tril_indices(fields, fields, -1), persistent=False)
        self.top = nn.Sequential(nn.Linear(width + fields * (fields - 1) // 2, 64), nn.ReLU(), nn.Linear(64, width))

    def forward(self, dense, sparse):
        bottom = self.bottom(dense)
        looked_up = [table(sparse[:, i : i + 1]) for i, table in enumerate(self.tables)]
        fields = torch.stack([bottom, *looked_up], dim=1)
        dots = torch.bmm(fields, fields.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([bottom, dots], dim=1))


class SequenceModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config["embedding"]
        self.tower = Tower(config)
        self.attend = nn.Sequential(nn.Linear(3 * width, 32), nn.ReLU(), nn.Linear(32, 1))
        self.score = nn.Sequential(nn.Linear(2 * width, 64), nn.ReLU(), nn.Linear(64, 1))

    def encode(self, dense, sparse):
        states = []
        for t in range(dense.size(1)):
            states.append(F.normalize(self.tower(dense[:, t], sparse[:, t]), dim=-1))
        return torch.stack(states, dim=1)

    def forward(self, dense, sparse):
        states = self.encode(dense, sparse)
        history, target = states[:, :-1], states[:, -1]
        repeated = target[:, None].expand_as(history)
        weights = self.attend(torch.cat([history, repeated, history * repeated], dim=-1)).softmax(dim=1)
        context = (weights * history).sum(1)
        return self.score(torch.cat([context, target], dim=-1)).squeeze(-1)


@torch.no_grad()
def evaluate(model, log, rng):
    model.eval()
    right = seen = 0
    for dense, sparse, labels in log.batches(512, 4, rng):
        right += ((model(dense, sparse) > 0).float() == labels).sum().item()
        seen += len(labels)
    model.train()
    return right / seen


def main():
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    log = VisitLog(20000, CONFIG)
    model = SequenceModel(CONFIG)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=CONFIG["lr"])
    total = torch.zeros(())
    for step, (dense, sparse, labels) in enumerate(log.batches(CONFIG["batch_size"], CONFIG["iterations"], rng), 1):
        loss = F.binary_cross_entropy_with_logits(model(dense, sparse), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.detach()
        if step % 90 == 0:
            print(f"iteration {step} loss {total.item() / 90:.4f}")
            total.zero_()
    print(f"accuracy {evaluate(model, log, rng):.3f}")


if __name__ == "__main__":
    main()
