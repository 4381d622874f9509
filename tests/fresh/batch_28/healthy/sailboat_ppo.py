"""Proximal policy optimisation: sailboats hold a course in gusts, all boats stepped at once."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class PPOConfig:
    boats: int = 64
    horizon: int = 64
    iterations: int = 12
    epochs: int = 4
    minibatch: int = 512
    gamma: float = 0.98
    lam: float = 0.95
    clip: float = 0.2
    entropy: float = 0.01
    lr: float = 5e-4


class Sea:
    """State: heading error, turn rate, speed, wind angle; action: the rudder."""

    def __init__(self, boats):
        self.boats = boats
        self.state = self._fresh(boats)
        self.age = torch.randint(0, 100, (boats,))

    @staticmethod
    def _fresh(count):
        return torch.randn(count, 4) * torch.tensor([1.0, 0.1, 0.2, 1.0])

    def step(self, rudder):
        error, turn, speed, wind = self.state.unbind(1)
        turn = 0.9 * turn + 0.2 * rudder.clamp(-1, 1) * (1 + speed) + 0.05 * torch.sin(wind)
        error = error + 0.2 * turn
        speed = 0.95 * speed + 0.05 * torch.cos(wind - error)
        wind = wind + 0.1 * torch.randn(self.boats)
        self.state = torch.stack([error, turn, speed, wind], dim=1)
        self.age += 1
        done = (error.abs() > 4) | (self.age >= 200)
        reward = torch.exp(-error.square()) - 0.05 * rudder.square()
        self.state = torch.where(done[:, None], self._fresh(self.boats), self.state)
        self.age = torch.where(done, 0, self.age)
        return reward, done.float()


def mlp(inputs, outputs, hidden=384):
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, outputs)
    )


class Helm(nn.Module):
    def __init__(self):
        super().__init__()
        self.policy, self.value = mlp(4, 1), mlp(4, 1)
        self.log_std = nn.Parameter(torch.full((1,), -0.5))

    def forward(self, states):
        mean = self.policy(states).squeeze(-1)
        return torch.distributions.Normal(mean, self.log_std.exp(), validate_args=False), self.value(states).squeeze(-1)


@torch.no_grad()
def rollout(helm, sea, config):
    shape = config.horizon, config.boats
    states = torch.empty(*shape, 4)
    actions, log_probs, rewards, dones = (torch.empty(shape) for _ in range(4))
    values = torch.empty(config.horizon + 1, config.boats)
    for t in range(config.horizon):
        states[t] = sea.state
        distribution, values[t] = helm(sea.state)
        actions[t] = distribution.sample()
        log_probs[t] = distribution.log_prob(actions[t])
        rewards[t], dones[t] = sea.step(actions[t])
    values[-1] = helm(sea.state)[1]
    advantages = torch.empty(shape)
    running = torch.zeros(config.boats)
    deltas = rewards + config.gamma * (1 - dones) * values[1:] - values[:-1]
    for t in reversed(range(config.horizon)):
        running = deltas[t] + config.gamma * config.lam * (1 - dones[t]) * running
        advantages[t] = running
    returns = advantages + values[:-1]
    flat = (states.flatten(0, 1), actions.flatten(), log_probs.flatten(), advantages.flatten(), returns.flatten())
    return flat, rewards.mean()


def update(helm, optimizer, data, config):
    for _ in range(config.epochs):
        for chosen in torch.randperm(len(data[0])).split(config.minibatch):
            states, actions, old_log_probs, advantages, returns = (part[chosen] for part in data)
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-6)
            distribution, values = helm(states)
            ratio = (distribution.log_prob(actions) - old_log_probs).exp()
            clipped = ratio.clamp(1 - config.clip, 1 + config.clip)
            loss = -torch.min(ratio * advantages, clipped * advantages).mean()
            loss = loss + 0.5 * (values - returns).square().mean() - config.entropy * distribution.entropy().mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(helm.parameters(), 0.5)
            optimizer.step()


def main():
    config = PPOConfig()
    torch.manual_seed(3)
    helm, sea = Helm(), Sea(config.boats)
    optimizer = torch.optim.Adam(helm.parameters(), lr=config.lr, fused=True)
    for iteration in range(config.iterations):
        data, reward = rollout(helm, sea, config)
        update(helm, optimizer, data, config)
        print(f"iteration {iteration}: mean reward {reward.item():.3f}")


if __name__ == "__main__":
    main()
