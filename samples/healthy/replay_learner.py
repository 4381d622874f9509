"""Double Q-learning of a thermostat for many houses: transitions lie in tensors, batches are one indexed read."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    houses: int = 64
    capacity: int = 16_384
    batch: int = 512
    steps: int = 240
    warmup: int = 16
    width: int = 256
    discount: float = 0.95
    follow: float = 0.01
    lr: float = 1e-3


class Houses:
    """Temperature in and out, the hour, and a heater with three levels; warmth is good, heat costs."""

    def __init__(self, count, device):
        self.inside = 18 + torch.randn(count, device=device)
        self.outside = 5 + 3 * torch.randn(count, device=device)
        self.hour = torch.randint(0, 24, (count,), device=device).float()

    def observe(self):
        angle = self.hour * 0.2618
        return torch.stack([(self.inside - 20) / 4, self.outside / 10, angle.sin(), angle.cos()], 1)

    def step(self, level):
        self.hour = (self.hour + 0.25) % 24
        self.outside = self.outside + 0.1 * torch.randn_like(self.outside)
        self.inside = self.inside + 0.02 * (self.outside - self.inside) + 0.4 * level
        return -(self.inside - 20.5).abs() - 0.3 * level


class Replay:
    """The last transitions, one tensor for each of their parts."""

    def __init__(self, capacity, device):
        self.states = torch.zeros(capacity, 4, device=device)
        self.following = torch.zeros(capacity, 4, device=device)
        self.moves = torch.zeros(capacity, dtype=torch.long, device=device)
        self.rewards = torch.zeros(capacity, device=device)
        self.capacity, self.next, self.filled = capacity, 0, 0

    def add(self, states, moves, rewards, following):
        rows = slice(self.next, self.next + len(states))  # the capacity is a multiple of the number of houses
        self.states[rows], self.moves[rows] = states, moves
        self.rewards[rows], self.following[rows] = rewards, following
        self.filled = max(self.filled, rows.stop)
        self.next = rows.stop % self.capacity

    def sample(self, count):
        rows = torch.randint(0, self.filled, (count,), device=self.states.device)
        return self.states[rows], self.moves[rows], self.rewards[rows], self.following[rows]


class Values(nn.Module):
    """A dueling head on a common trunk."""

    def __init__(self, width):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.heads = nn.Linear(width, 4)

    def forward(self, state):
        with torch.autocast(state.device.type, dtype=torch.bfloat16):
            value, gain = self.heads(self.trunk(state)).float().split([1, 3], dim=1)
        return value + gain - gain.mean(1, keepdim=True)


class Agent:
    def __init__(self, cfg, device):
        self.cfg, self.online, self.target = cfg, Values(cfg.width).to(device), Values(cfg.width).to(device)
        self.target.load_state_dict(self.online.state_dict())
        self.target.requires_grad_(False)
        self.weights, self.followers = list(self.online.parameters()), list(self.target.parameters())
        self.optimizer = torch.optim.Adam(self.weights, lr=cfg.lr, fused=True)

    @torch.no_grad()
    def act(self, state, exploration):
        best = self.online(state).argmax(1)
        return torch.where(torch.rand(len(best), device=best.device) < exploration, torch.randint_like(best, 3), best)

    def learn(self, states, moves, rewards, following):
        with torch.no_grad():
            best = self.online(following).argmax(1, keepdim=True)
            wanted = rewards + self.cfg.discount * self.target(following).gather(1, best).squeeze(1)
        loss = F.smooth_l1_loss(self.online(states).gather(1, moves[:, None]).squeeze(1), wanted)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(self.followers, self.weights, self.cfg.follow)
        return loss.detach()


def main(cfg):
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    houses, replay, agent = Houses(cfg.houses, device), Replay(cfg.capacity, device), Agent(cfg, device)
    rewards = []
    for step in range(cfg.steps + cfg.warmup):
        state = houses.observe()
        move = agent.act(state, max(0.05, 1 - step / 150))
        reward = houses.step(move)
        replay.add(state, move, reward, houses.observe())
        rewards.append(reward.mean())
        if step >= cfg.warmup:
            loss = agent.learn(*replay.sample(cfg.batch))
            if step % 60 == 0:
                print(f"step {step}: reward {torch.stack(rewards[-60:]).mean().item():.3f}, loss {loss.item():.4f}")


if __name__ == "__main__":
    main(Config())
