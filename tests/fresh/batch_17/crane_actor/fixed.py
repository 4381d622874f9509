"""A crane learns not to swing its load: soft actor critic on stored transitions, with batches drawn by a thread."""

import copy
import queue
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from feeder import Feeder
from torch import nn


@dataclass
class Settings:
    stored: int = 40000
    batch_size: int = 256
    hidden: int = 224
    updates: int = 500
    gamma: float = 0.98
    tau: float = 0.01
    entropy: float = 0.05
    lr: float = 3e-4


def swing(state, push, dt=0.05):
    """Trolley position and speed, angle of the load and its speed."""
    x, v, angle, turn = state.unbind(1)
    push = push.squeeze(1)
    after = torch.stack([x + dt * v, v + dt * push, angle + dt * turn, turn - dt * (9.8 * angle.sin() + push)], 1)
    return after, -(after[:, 0] ** 2) - 2 * after[:, 2] ** 2 - 0.01 * push**2


def collect(count, gen):
    state = torch.randn(count, 4, generator=gen) * torch.tensor([2.0, 1.0, 0.4, 0.5])
    push = 4 * torch.rand(count, 1, generator=gen) - 2
    after, reward = swing(state, push)
    return state, push, reward, after


def mlp(inputs, hidden, outputs):
    layers = [nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, outputs)]
    return nn.Sequential(*layers)


class Policy(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.net = mlp(4, hidden, 2)

    def forward(self, state):
        mean, log_std = self.net(state).chunk(2, 1)
        std = log_std.clamp(-5, 1).exp()
        raw = mean + std * torch.randn_like(mean)
        action = torch.tanh(raw)
        log_prob = -0.5 * ((raw - mean) / std) ** 2 - std.log() - torch.log(1 - action**2 + 1e-6)
        return 2 * action, log_prob.sum(1)


class Critic(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.one, self.two = mlp(5, hidden, 1), mlp(5, hidden, 1)

    def forward(self, state, action):
        x = torch.cat([state, action], 1)
        return self.one(x).squeeze(1), self.two(x).squeeze(1)


def update(batch, policy, critic, target, optimizers, s):
    state, action, reward, after = batch
    with torch.no_grad():
        next_action, log_prob = policy(after)
        wanted = reward + s.gamma * (torch.min(*target(after, next_action)) - s.entropy * log_prob)
    loss = sum(F.mse_loss(value, wanted) for value in critic(state, action))
    optimizers[0].zero_grad()
    loss.backward()
    optimizers[0].step()
    critic.requires_grad_(False)
    chosen, log_prob = policy(state)
    policy_loss = (s.entropy * log_prob - torch.min(*critic(state, chosen))).mean()
    optimizers[1].zero_grad()
    policy_loss.backward()
    optimizers[1].step()
    critic.requires_grad_(True)
    with torch.no_grad():
        torch._foreach_lerp_(list(target.parameters()), list(critic.parameters()), s.tau)
    return loss


def main(s):
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(18)
    store = collect(s.stored, gen)
    policy, critic = Policy(s.hidden), Critic(s.hidden)
    target = copy.deepcopy(critic).requires_grad_(False)
    optimizers = [torch.optim.Adam(critic.parameters(), lr=s.lr), torch.optim.Adam(policy.parameters(), lr=s.lr)]

    def draw():
        rows = torch.randint(s.stored, (s.batch_size,), generator=gen)
        return [part[rows] for part in store]

    batches = queue.Queue(maxsize=8)
    feeder = Feeder(draw, batches, rest=0.002)
    feeder.start()
    for step in range(s.updates):
        loss = update(batches.get(), policy, critic, target, optimizers, s)
        if step % 100 == 0:
            print(f"update {step}: critic {loss.item():.3f}")
    while feeder.is_alive():
        feeder.ending.set()
        while not batches.empty():
            batches.get_nowait()
    feeder.stop()


if __name__ == "__main__":
    main(Settings())
