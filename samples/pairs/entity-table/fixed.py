"""Knowledge-graph embeddings: TransE with corrupted tails."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
ENTITIES, RELATIONS, WIDTH, MARGIN = 40_000, 50, 48, 1.0

triples = torch.stack(
    [
        torch.randint(0, ENTITIES, (60_000,)),
        torch.randint(0, RELATIONS, (60_000,)),
        torch.randint(0, ENTITIES, (60_000,)),
    ],
    1,
)


class TransE(nn.Module):
    def __init__(self):
        super().__init__()
        self.entity = nn.Embedding(ENTITIES, WIDTH, sparse=True)
        self.relation = nn.Embedding(RELATIONS, WIDTH, sparse=True)
        nn.init.xavier_uniform_(self.entity.weight)
        nn.init.xavier_uniform_(self.relation.weight)

    def distance(self, head, relation, tail):
        head, tail = F.normalize(self.entity(head), dim=-1), F.normalize(self.entity(tail), dim=-1)
        return (head + self.relation(relation) - tail).norm(p=1, dim=-1)


def run_epoch(model, optimizer, batch_size=512):
    total = 0.0
    for batch in triples[torch.randperm(len(triples))].split(batch_size):
        head, relation, tail = batch.unbind(1)
        wrong = torch.randint(0, ENTITIES, tail.shape)
        good, bad = model.distance(head, relation, tail), model.distance(head, relation, wrong)
        loss = F.relu(MARGIN + good - bad).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(batch)
    return total / len(triples)


model = TransE()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
print(f"epoch 0: {run_epoch(model, optimizer):.4f}")
