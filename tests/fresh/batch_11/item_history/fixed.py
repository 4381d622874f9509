"""Click prediction from a user's history: each past item goes through one tower, attention sums them up."""

import torch
import torch.nn.functional as F
import yaml
from torch import nn

CONFIG = """
tables: [3000, 800, 200]
dense: 8
width: 16
history: 20
batch: 256
steps: 300
lr: 0.002
"""


class Tower(nn.Module):
    """Embeddings, a bottom network and the products of all pairs."""

    def __init__(self, tables, dense, width):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for rows in tables)
        self.bottom = nn.Sequential(nn.Linear(dense, 32), nn.ReLU(), nn.Linear(32, width), nn.ReLU())
        pairs = (len(tables) + 1) * len(tables) // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 32), nn.ReLU(), nn.Linear(32, width))
        self.register_buffer("upper", torch.triu_indices(len(tables) + 1, len(tables) + 1, 1))

    def forward(self, dense, sparse):
        x = self.bottom(dense)
        vectors = torch.stack([x, *(table(sparse[:, i]) for i, table in enumerate(self.tables))], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.upper[0], self.upper[1]]
        return self.top(torch.cat([x, products], dim=1))


class HistoryNet(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.tower = Tower(config["tables"], config["dense"], config["width"])
        self.final = nn.Sequential(nn.Linear(2 * config["width"], 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, dense, sparse):
        past = self.tower(dense[:, :-1].flatten(0, 1), sparse[:, :-1].flatten(0, 1))
        history = past.unflatten(0, (len(dense), -1))
        candidate = self.tower(dense[:, -1], sparse[:, -1])
        history, candidate = F.normalize(history, dim=-1), F.normalize(candidate, dim=-1)
        weights = torch.bmm(history, candidate[:, :, None]).softmax(dim=1)
        context = (weights * history).sum(dim=1)
        return self.final(torch.cat([context, candidate], dim=1)).squeeze(1)


def batches(config):
    gen = torch.Generator().manual_seed(11)
    shape = (config["batch"], config["history"] + 1)
    for _ in range(config["steps"]):
        dense = torch.rand(*shape, config["dense"], generator=gen)
        sparse = torch.stack([torch.randint(rows, shape, generator=gen) for rows in config["tables"]], dim=-1)
        clicked = (sparse[:, -1, 2] == sparse[:, -2, 2]).float()
        yield dense, sparse, clicked


def main():
    config = yaml.safe_load(CONFIG)
    torch.manual_seed(0)
    model = HistoryNet(config)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=config["lr"])
    for step, (dense, sparse, clicked) in enumerate(batches(config)):
        loss = F.binary_cross_entropy_with_logits(model(dense, sparse), clicked)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
