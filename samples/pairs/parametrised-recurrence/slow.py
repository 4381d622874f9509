"""Copies symbols over a gap with a recurrent network whose matrix stays orthogonal."""

import torch
from torch import nn
from torch.nn.utils import parametrizations

torch.manual_seed(0)
SYMBOLS, COPIED, GAP, BATCH, WIDTH = 8, 5, 12, 64, 96


class OrthogonalRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(SYMBOLS + 2, WIDTH)
        self.turn = parametrizations.orthogonal(nn.Linear(WIDTH, WIDTH, bias=False), orthogonal_map="cayley")
        self.threshold = nn.Parameter(torch.zeros(WIDTH))
        self.leave = nn.Linear(WIDTH, SYMBOLS + 2)

    def unroll(self, x):
        state, states = x.new_zeros(x.shape[1], WIDTH), []
        for now in self.enter(x):
            state = now + self.turn(state)
            state = state.sign() * torch.relu(state.abs() + self.threshold)
            states.append(state)
        return torch.stack(states)

    def forward(self, x):
        return self.leave(self.unroll(x))


def copying(batch):
    """Symbols, a gap, a mark, and silence in which the symbols have to be said again: (times, batch)."""
    symbols = torch.randint(2, SYMBOLS + 2, (COPIED, batch))
    gap, mark = torch.zeros(GAP, batch, dtype=torch.long), torch.ones(1, batch, dtype=torch.long)
    seen = torch.cat([symbols, gap, mark, gap[:COPIED]])
    said = torch.cat([gap, gap[: COPIED + 1], symbols])
    return seen, said


def train(steps):
    model = OrthogonalRNN()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=5e-4, alpha=0.9, foreach=True)
    for step in range(steps):
        seen, said = copying(BATCH)
        vectors = torch.eye(SYMBOLS + 2)[seen]
        loss = nn.functional.cross_entropy(model(vectors).flatten(0, 1), said.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(f"step {step}: {loss.item():.4f}")


if __name__ == "__main__":
    train(120)
