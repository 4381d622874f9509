"""Latent ODE of glucose and insulin after a meal, fitted to readings at a few times."""

import argparse

import torch
from ode import odeint
from torch import nn


def simulate(people, times, seed):
    """Readings of a minimal model with four compartments, each person with rates of their own."""
    gen = torch.Generator().manual_seed(seed)
    rates = 0.5 + torch.rand(people, 4, generator=gen)
    state = 1 + 0.5 * torch.rand(people, 4, generator=gen)
    start, readings, now = state.clone(), [], 0.0
    for time in times:
        while now < time - 1e-6:
            glucose, insulin, gut, action = state.unbind(1)
            slope = torch.stack(
                [
                    gut * rates[:, 0] - glucose * (0.2 + action),
                    rates[:, 1] * torch.relu(glucose - 0.5) - 0.8 * insulin,
                    -rates[:, 2] * gut,
                    0.5 * insulin - rates[:, 3] * action,
                ],
                dim=1,
            )
            state, now = state + 0.02 * slope, now + 0.02
        readings.append(state)
    readings = torch.stack(readings)
    return torch.cat([start, rates], 1), readings + 0.02 * torch.randn(readings.shape, generator=gen)


class Field(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(width + 1, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, width)
        )

    def forward(self, time, state):
        clock = state.new_full((len(state), 1), time)
        return self.net(torch.cat([state, clock], 1))


class LatentODE(nn.Module):
    def __init__(self, inputs, latent, hidden, outputs):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, latent))
        self.field = Field(latent, hidden)
        self.decode = nn.Linear(latent, outputs)

    def forward(self, person, times):
        path = odeint(self.field, self.encode(person), times, rtol=1e-5, atol=1e-6)
        return self.decode(path[1:])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--people", type=int, default=1024)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--hidden", type=int, default=96)
    parser.add_argument("--latent", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    times = [0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0]
    people, readings = simulate(args.people, times[1:], seed=12)
    model = LatentODE(people.shape[1], args.latent, args.hidden, readings.shape[2])
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        total = 0.0
        for rows in torch.randperm(args.people).split(args.batch_size):
            loss = (model(people[rows], times) - readings[:, rows]).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item() * len(rows)
        print(f"epoch {epoch}: {total / args.people:.5f}")


if __name__ == "__main__":
    main()
