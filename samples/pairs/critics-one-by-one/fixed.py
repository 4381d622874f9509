"""An ensemble of critics learns the values of actions, from transitions that were gathered before."""

import torch
from torch import nn

torch.manual_seed(0)
OBSERVED, ACTED, WIDTH, CRITICS, BATCH = 24, 6, 64, 10, 128

count = 20_000
states, actions = torch.randn(count, OBSERVED), torch.rand(count, ACTED) * 2 - 1
rewards = states[:, 0] - (actions * states[:, :ACTED]).square().sum(1) + 0.1 * torch.randn(count)


class Ensemble(nn.Module):
    def __init__(self):
        super().__init__()
        sizes = ((OBSERVED + ACTED, WIDTH), (WIDTH, WIDTH), (WIDTH, 1))
        uniform = [torch.rand(CRITICS, before + 1, after) * 2 - 1 for before, after in sizes]
        self.weights = nn.ParameterList(one * (one.shape[1] - 1) ** -0.5 for one in uniform)

    def forward(self, x):
        x = x.expand(CRITICS, *x.shape)
        for number, weight in enumerate(self.weights):
            x = torch.baddbmm(weight[:, :1], torch.relu(x) if number else x, weight[:, 1:])
        return x.squeeze(-1)


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
