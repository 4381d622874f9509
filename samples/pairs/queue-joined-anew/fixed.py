"""Momentum contrast on vibrations of bearings: two views of a signal agree, 16,384 older keys are the others."""

import copy

import torch
from torch import nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
LENGTH, WIDTH, KEYS, BATCH = 128, 64, 16_384, 32


def encoder():
    return nn.Sequential(
        nn.Conv1d(1, 16, 9, 4, 4), nn.ReLU(), nn.Conv1d(16, 32, 9, 4, 4), nn.ReLU(), nn.Flatten(), nn.Linear(256, WIDTH)
    ).to(device)


class Contrast(nn.Module):
    def __init__(self, momentum=0.99, temperature=0.1):
        super().__init__()
        self.query, self.momentum, self.temperature = encoder(), momentum, temperature
        self.key = copy.deepcopy(self.query).requires_grad_(False)
        self.register_buffer("queue", nn.functional.normalize(torch.randn(KEYS, WIDTH, device=device), dim=1))
        self.register_buffer("at", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def follow(self):
        torch._foreach_lerp_(list(self.key.parameters()), list(self.query.parameters()), 1 - self.momentum)

    @torch.no_grad()
    def enqueue(self, keys):
        self.queue[self.at : self.at + len(keys)] = keys
        self.at = (self.at + len(keys)) % KEYS

    def forward(self, first, second):
        self.follow()
        queries = nn.functional.normalize(self.query(first), dim=1)
        with torch.no_grad():
            keys = nn.functional.normalize(self.key(second), dim=1)
        alike = (queries * keys).sum(1, keepdim=True)
        scores = torch.cat([alike, queries @ self.queue.T], 1) / self.temperature
        return nn.functional.cross_entropy(scores, torch.zeros(len(first), dtype=torch.long, device=device)), keys


def view(signal):
    return signal.roll(int(torch.randint(0, 16, ())), 2) * (0.8 + 0.4 * torch.rand(len(signal), 1, 1, device=device))


phase = 6.283 * torch.rand(2048, 1, 1, device=device)
signals = ((0.1 + torch.rand(2048, 1, 1, device=device)) * torch.arange(LENGTH, device=device) + phase).sin()
model = Contrast()
optimizer = torch.optim.SGD(model.query.parameters(), lr=0.03, momentum=0.9, fused=True)
for step in range(250):
    batch = signals[torch.randint(0, len(signals), (BATCH,), device=device)]
    loss, keys = model(view(batch), view(batch))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    model.enqueue(keys)
    if step % 50 == 0:
        print(f"step {step}: {loss.item():.4f}")
