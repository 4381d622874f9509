"""Facts of a knowledge graph as rotations: negatives are drawn for a whole batch, and tables have sparse gradients."""

import torch
import torch.nn.functional as F
from torch import nn


def facts(count, entities, relations, seed):
    g = torch.Generator().manual_seed(seed)
    angle = 6.28 * torch.rand(entities, generator=g)
    head = torch.randint(entities, (count,), generator=g)
    relation = torch.randint(relations, (count,), generator=g)
    order = angle.argsort()
    goal = (angle[head] + 6.28 * relation / relations) % 6.28
    tail = order[torch.searchsorted(angle[order], goal).clamp(max=entities - 1)]
    return torch.stack([head, relation, tail], 1)


class RotatE(nn.Module):
    def __init__(self, entities, relations, dim=64, margin=6.0):
        super().__init__()
        self.entity = nn.Embedding(entities, 2 * dim, sparse=True)
        self.relation = nn.Embedding(relations, dim, sparse=True)
        nn.init.uniform_(self.entity.weight, -0.1, 0.1)
        nn.init.uniform_(self.relation.weight, -3.14, 3.14)
        self.margin = margin

    def score(self, head, relation, tail):
        a, b = self.entity(head).chunk(2, -1)
        x, y = self.entity(tail).chunk(2, -1)
        turn = self.relation(relation)
        cos, sin = turn.cos(), turn.sin()
        away = (a * cos - b * sin - x).square() + (a * sin + b * cos - y).square()
        return self.margin - (away + 1e-9).sqrt().sum(-1)

    def forward(self, fact, wrong):
        head, relation, tail = fact.unbind(1)
        right = F.logsigmoid(self.score(head, relation, tail))
        false = self.score(head[:, None], relation[:, None], wrong)
        weight = false.detach().softmax(1)
        return -(right.mean() + (weight * F.logsigmoid(-false)).sum(1).mean()) / 2


def main(entities=20_000, relations=12, count=60_000, batch=256, negatives=32, epochs=2):
    torch.manual_seed(0)
    known = facts(count, entities, relations, seed=29)
    model = RotatE(entities, relations)
    optimizer = torch.optim.SparseAdam(model.parameters(), lr=5e-3)
    for epoch in range(epochs):
        for step, index in enumerate(torch.randperm(count).split(batch)):
            wrong = torch.randint(entities, (len(index), negatives))
            loss = model(known[index], wrong)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 50 == 0:
                print(f"epoch {epoch} step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
