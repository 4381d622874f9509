"""An ensemble of critics learns the values of actions, from transitions that were gathered before."""

import torch
from torch import nn

torch.manual_seed(0)
OBSERVED, ACTED, WIDTH, CRITICS, BATCH = 24, 6, 64, 10, 128

count = 20_000
states, actions = torch.randn(count, OBSERVED), torch.rand(count, ACTED) * 2 - 1
rewards = states[:, 0] - (actions * states[:, :ACTED]).square().sum(1) + 0.1 * torch.randn(count)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(OBSERVED + ACTED, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.last = nn.Linear(WIDTH, 1)

    def forward(self, x):
        x = torch.relu(self.first(x))
        return self.last(torch.relu(self.second(x))).squeeze(-1)


class Ensemble(nn.Module):
    def __init__(self):
        super().__init__()
        self.critics = nn.ModuleList(Critic() for _ in range(CRITICS))

    def forward(self, x):
        return torch.stack([critic(x) for critic in self.critics])


ensemble = Ensemble()
optimizer = torch.optim.SGD(ensemble.parameters(), lr=1e-3, momentum=0.9)


def train_step():
    rows = torch.randint(count, (BATCH,))
    values = ensemble(torch.cat([states[rows], actions[rows]], 1))
    loss = (values - rewards[rows]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


for step in range(600):
    loss = train_step()
    if step % 100 == 0:
        print(f"step {step}: loss {loss.item():.4f}")
