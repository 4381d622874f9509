"""Deblurs small signals: one network, applied again and again to its own answer, in bfloat16."""

import torch
from torch import nn

torch.manual_seed(0)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZE, HIDDEN, ROUNDS, BATCH = 128, 512, 10, 64


class Refiner(nn.Module):
    """Looks at the blurred signal, its state and the answer so far; says how to change the answer."""

    def __init__(self):
        super().__init__()
        self.look = nn.Linear(2 * SIZE + HIDDEN, HIDDEN)
        self.think = nn.Linear(HIDDEN, HIDDEN)
        self.gate = nn.Linear(HIDDEN, HIDDEN)
        self.change = nn.Linear(HIDDEN, SIZE)

    def forward(self, blurred, answer, state):
        seen = torch.relu(self.look(torch.cat([blurred, answer, state], 1)))
        state = state + torch.sigmoid(self.gate(seen)) * torch.tanh(self.think(seen))
        return answer + self.change(state), state


class Unrolled(nn.Module):
    def __init__(self, refiner, rounds):
        super().__init__()
        self.refiner, self.rounds = refiner, rounds

    @torch.autocast(DEVICE, dtype=torch.bfloat16)
    def forward(self, blurred):
        answer, state = blurred, blurred.new_zeros(len(blurred), HIDDEN)
        answers = []
        for _ in range(self.rounds):
            answer, state = self.refiner(blurred, answer, state)
            answers.append(answer)
        return torch.stack(answers)


def signals(count):
    """Steps and spikes, and what a wide lens makes of them."""
    sharp = (torch.rand(count, SIZE) < 0.05) * torch.randn(count, SIZE)
    sharp = sharp.cumsum(1) * 0.5 + sharp
    kernel = torch.exp(-(torch.linspace(-2, 2, 15) ** 2))
    blurred = nn.functional.conv1d(sharp[:, None], (kernel / kernel.sum())[None, None], padding=7)
    return sharp.to(DEVICE), blurred[:, 0].to(DEVICE)


def train(model, sharp, blurred, epochs=2):
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4, fused=True)
    weight = 0.8 ** torch.arange(ROUNDS - 1, -1, -1, device=DEVICE)[:, None, None]
    for epoch in range(epochs):
        for rows in torch.randperm(len(sharp), device=DEVICE).split(BATCH):
            answers = model(blurred[rows])
            loss = (weight * (answers.float() - sharp[rows]).square()).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        last = (answers[-1].float() - sharp[rows]).square().mean()
        print(f"epoch {epoch}: loss {loss.item():.4f}, last round {last.item():.4f}")


train(Unrolled(Refiner(), ROUNDS).to(DEVICE), *signals(6400))
