"""TransE on triples of an atlas: which river flows through which town, which town lies in which province."""

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


@dataclass
class Settings:
    entities: int = 15000
    relations: int = 60
    triples: int = 60000
    dim: int = 128
    negatives: int = 16
    batch_size: int = 1024
    epochs: int = 3
    margin: float = 2.0
    lr: float = 0.05
    seed: int = 19


class Triples(Dataset):
    """Heads, relations and tails, with the entities of each relation drawn from a region of the map."""

    def __init__(self, settings):
        generator = torch.Generator().manual_seed(settings.seed)
        n = settings.triples
        self.relation = torch.randint(0, settings.relations, (n,), generator=generator)
        spread = settings.entities // 6
        start = self.relation * (settings.entities - 2 * spread) // settings.relations
        self.head = start + torch.randint(0, spread, (n,), generator=generator)
        self.tail = (self.head * 7 + self.relation * 13) % settings.entities
        self.triples = torch.stack([self.head, self.relation, self.tail], 1)

    def __len__(self):
        return len(self.triples)

    def __getitems__(self, indices):
        return self.triples[torch.tensor(indices)]


class TransE(nn.Module):
    """Head plus relation should be near the tail; entities stay inside the unit ball."""

    def __init__(self, settings):
        super().__init__()
        self.entity = nn.Embedding(settings.entities, settings.dim)
        self.relation = nn.Embedding(settings.relations, settings.dim)
        bound = 6 / settings.dim**0.5
        nn.init.uniform_(self.entity.weight, -bound, bound)
        nn.init.uniform_(self.relation.weight, -bound, bound)

    def forward(self, triples, negatives):
        places = torch.cat([triples[:, :1], triples[:, 2:], negatives], dim=1)
        vectors = self.entity(places)
        head, tail, others = vectors[:, :1], vectors[:, 1:2], vectors[:, 2:]
        moved = head + F.normalize(self.relation(triples[:, 1]), dim=-1)[:, None]
        positive = (moved - tail).square().sum(-1)
        negative = (moved - others).square().sum(-1)
        return positive, negative


class Trainer:
    def __init__(self, settings):
        self.settings = settings
        self.model = TransE(settings)
        self.optimizer = torch.optim.Adagrad(self.model.parameters(), lr=settings.lr)

    def corrupt(self, triples):
        return torch.randint(0, self.settings.entities, (len(triples), self.settings.negatives))

    def step(self, triples):
        positive, negative = self.model(triples, self.corrupt(triples))
        loss = F.relu(self.settings.margin + positive - negative).mean()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.model.entity.weight.data.renorm_(2, 0, 1.0)
        return loss.item()

    def fit(self, loader):
        for epoch in range(self.settings.epochs):
            losses = [self.step(triples) for triples in loader]
            rank = self.mean_rank(loader.dataset.triples[:200])
            print(f"epoch {epoch}: loss {sum(losses) / len(losses):.4f}, mean rank {rank:.0f}")

    @torch.no_grad()
    def mean_rank(self, triples):
        table = self.model.entity.weight
        moved = table[triples[:, 0]] + F.normalize(self.model.relation(triples[:, 1]), dim=-1)
        distances = torch.cdist(moved, table)
        own = distances.gather(1, triples[:, 2:])
        return (distances < own).sum(1).float().mean().item()


def main():
    settings = Settings()
    torch.manual_seed(settings.seed)
    loader = DataLoader(
        Triples(settings), settings.batch_size, shuffle=True, drop_last=True, collate_fn=lambda batch: batch
    )
    Trainer(settings).fit(loader)


if __name__ == "__main__":
    main()
