"""Neural ODE of a driven, damped pendulum from noisy observations, integrated by Runge-Kutta steps of fixed length."""

import argparse
import math

import torch
import torch.nn as nn

torch.manual_seed(77)

parser = argparse.ArgumentParser("Neural ODE")
parser.add_argument("--trajectories", type=int, default=256)
parser.add_argument("--data_size", type=int, default=240)
parser.add_argument("--batch_time", type=int, default=16)
parser.add_argument("--batch_size", type=int, default=256)
parser.add_argument("--niters", type=int, default=150)
parser.add_argument("--test_freq", type=int, default=50)
parser.add_argument("--hidden", type=int, default=128)
args = parser.parse_args()


def rk4_step(func, t, y, dt):
    k1 = func(t, y)
    k2 = func(t + dt / 2, y + dt / 2 * k1)
    k3 = func(t + dt / 2, y + dt / 2 * k2)
    k4 = func(t + dt, y + dt * k3)
    return y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def odeint(func, y0, times, dt):
    """States after each of the steps, first is y0: [time, batch, 2]."""
    states = [y0]
    for i in range(times - 1):
        states.append(rk4_step(func, i * dt, states[-1], dt))
    return torch.stack(states)


def pendulum(t, y):
    angle, speed = y.unbind(dim=1)
    return torch.stack([speed, -2.0 * torch.sin(angle) - 0.15 * speed + 0.3 * math.cos(1.5 * t)], dim=1)


class ODEFunc(nn.Module):
    """The right-hand side: sees the state and the phase of the drive, measured from the start of the window."""

    def __init__(self, hidden):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(5, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 2)
        )

    def start(self, phase):
        self.phase = phase

    def forward(self, t, y):
        drive = self.phase + 1.5 * t
        angle, speed = y[:, :1], y[:, 1:]
        inputs = torch.cat([torch.sin(angle), torch.cos(angle), speed, torch.sin(drive), torch.cos(drive)], dim=1)
        return self.net(inputs)


DT = 0.1
with torch.no_grad():
    true_y = odeint(pendulum, 2 * torch.rand(args.trajectories, 2) - 1, args.data_size, DT)
observed = true_y + 0.02 * torch.randn_like(true_y)


def get_batch():
    start = torch.randint(0, args.data_size - args.batch_time, (args.batch_size,))
    which = torch.randint(0, args.trajectories, (args.batch_size,))
    steps = start + torch.arange(args.batch_time)[:, None]
    return observed[start, which], 1.5 * DT * start[:, None], observed[steps, which]


if __name__ == "__main__":
    func = ODEFunc(args.hidden)
    optimizer = torch.optim.Adam(func.parameters(), lr=2e-3, fused=True)
    for itr in range(1, args.niters + 1):
        y0, phase, wanted = get_batch()
        func.start(phase)
        pred_y = odeint(func, y0, args.batch_time, DT)
        loss = (pred_y - wanted).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if itr % args.test_freq == 0:
            with torch.no_grad():
                func.start(torch.zeros(args.trajectories, 1))
                long = odeint(func, true_y[0], 60, DT)
            print(f"Iter {itr:04d} | train {loss.item():.5f} | long run {(long - true_y[:60]).abs().mean().item():.5f}")
