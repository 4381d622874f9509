"""Meta-learning as Reptile does it: adapt a copy of the network to one task, move towards where it ended."""

import copy

import torch
from torch import nn

torch.manual_seed(0)


class FewShot(nn.Module):
    """A table of token vectors, averaged, and a small classifier on top."""

    def __init__(self, vocabulary=20_000, width=64, ways=5):
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)
        self.table.weight.requires_grad_(False)  # given, not learnt
        self.body = nn.Sequential(
            nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, ways)
        )

    def forward(self, tokens):
        return self.body(self.table(tokens).mean(1))


def task():
    """25 documents of five classes; a class prefers some tokens."""
    labels = torch.arange(5).repeat(5)
    tokens = torch.randint(0, 20_000, (25, 30))
    return torch.where(torch.rand(25, 30) < 0.3, (labels * 37 + 11)[:, None], tokens), labels


def adapt(learner, tokens, labels, rate=0.1, rounds=2):
    weights = list(learner.body.parameters())
    for _ in range(rounds):
        loss = nn.functional.cross_entropy(learner(tokens), labels)
        with torch.no_grad():
            torch._foreach_add_(weights, torch.autograd.grad(loss, weights), alpha=-rate)
    return loss.detach()


def main():
    model = FewShot()
    meta = torch.optim.SGD(model.body.parameters(), lr=0.5)
    learner = copy.deepcopy(model)
    for iteration in range(250):
        learner.body.load_state_dict(model.body.state_dict())
        loss = adapt(learner, *task())
        meta.zero_grad()
        for ours, adapted in zip(model.body.parameters(), learner.body.parameters()):
            ours.grad = ours.detach() - adapted.detach()
        meta.step()
        if iteration % 50 == 0:
            print(f"iteration {iteration}: inner loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
