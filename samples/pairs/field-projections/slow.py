"""Records of a clinic: groups of measurements, each projected by a layer of its own, pooled by attention."""

import torch
from torch import nn

torch.manual_seed(0)
GROUPS, EACH, WIDTH, BATCH = 32, 12, 48, 64

count = 12_000
records = torch.randn(count, GROUPS * EACH)
outcomes = (records[:, ::7].sum(1) + torch.randn(count) > 0).float()


class Projections(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(EACH, WIDTH) for _ in range(GROUPS))

    def forward(self, x):
        tokens = []
        for group, layer in enumerate(self.layers):
            tokens.append(layer(x[:, group * EACH : (group + 1) * EACH]))
        return torch.stack(tokens, 1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.projections, self.norm = Projections(), nn.LayerNorm(WIDTH)
        self.score, self.out = nn.Linear(WIDTH, 1), nn.Linear(WIDTH, 1)

    def forward(self, x):
        tokens = torch.tanh(self.norm(self.projections(x)))
        return self.out((self.score(tokens).softmax(1) * tokens).sum(1)).squeeze(-1)


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def train_step():
    rows = torch.randint(count, (BATCH,))
    loss = nn.functional.binary_cross_entropy_with_logits(model(records[rows]), outcomes[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


for step in range(600):
    loss = train_step()
    if step % 100 == 0:
        print(f"step {step}: loss {loss.item():.4f}")
