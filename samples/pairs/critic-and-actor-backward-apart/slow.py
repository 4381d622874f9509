"""Advantage actor-critic: many carts on a hill, one trunk for both heads, a stretch of steps for each update."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    carts: int = 128
    horizon: int = 8
    updates: int = 120
    width: int = 256
    discount: float = 0.98
    entropy: float = 0.01
    value_weight: float = 0.5
    lr: float = 7e-4


class Hill:
    """Carts in a valley which must swing to get out of it; all of them are one tensor."""

    def __init__(self, carts, device):
        self.device = device
        self.state = torch.zeros(carts, 2, device=device)
        self.reset(torch.ones(carts, dtype=torch.bool, device=device))

    def reset(self, which):
        fresh = torch.rand_like(self.state) * torch.tensor([0.2, 0.0], device=self.device)
        start = fresh - torch.tensor([0.6, 0.0], device=self.device)
        self.state = torch.where(which[:, None], start, self.state)

    def step(self, move):
        place, speed = self.state.unbind(1)
        speed = (speed + 0.001 * (move - 1) - 0.0025 * torch.cos(3 * place)).clamp(-0.07, 0.07)
        place = (place + speed).clamp(-1.2, 0.6)
        out = place >= 0.5
        self.state = torch.stack([place, speed], 1)
        reward = 10.0 * out + 100 * speed.abs() - 0.1
        self.reset(out)
        return reward, out


class ActorCritic(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(2, width), nn.LayerNorm(width), nn.GELU(),
            nn.Linear(width, width), nn.LayerNorm(width), nn.GELU(),
            nn.Linear(width, width), nn.LayerNorm(width), nn.GELU(),
        )  # fmt: skip
        self.actor, self.critic = nn.Linear(width, 3), nn.Linear(width, 1)

    def forward(self, state):
        with torch.autocast(state.device.type, dtype=torch.bfloat16):
            hidden = self.trunk(state * state.new_tensor([1.0, 20.0]))
            return self.actor(hidden).float(), self.critic(hidden).float().squeeze(-1)


class Learner:
    def __init__(self, cfg, device):
        self.cfg, self.hill = cfg, Hill(cfg.carts, device)
        self.model = ActorCritic(cfg.width).to(device)
        self.optimizer = torch.optim.RMSprop(self.model.parameters(), lr=cfg.lr)
        self.reward = torch.zeros((), device=device)

    @torch.no_grad()
    def rollout(self):
        """States, moves, and the discounted returns of one stretch: tensors of (horizon, carts, …)."""
        states, moves, rewards, ends = [], [], [], []
        for _ in range(self.cfg.horizon):
            states.append(self.hill.state)
            scores, _ = self.model(self.hill.state)
            moves.append(torch.distributions.Categorical(logits=scores).sample())
            reward, end = self.hill.step(moves[-1])
            rewards.append(reward)
            ends.append(end)
        following = self.model(self.hill.state)[1]
        returns = []
        for reward, end in zip(reversed(rewards), reversed(ends)):
            following = reward + self.cfg.discount * following * ~end
            returns.append(following)
        self.reward = torch.stack(rewards).mean()
        return torch.stack(states), torch.stack(moves), torch.stack(returns[::-1])

    def update(self):
        states, moves, returns = self.rollout()
        scores, value = self.model(states.flatten(0, 1))
        policy = torch.distributions.Categorical(logits=scores)
        advantage = returns.flatten() - value.detach()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
        actor = -(policy.log_prob(moves.flatten()) * advantage).mean() - self.cfg.entropy * policy.entropy().mean()
        critic = self.cfg.value_weight * F.smooth_l1_loss(value, returns.flatten())
        self.optimizer.zero_grad()
        actor.backward(retain_graph=True)
        critic.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()


def main(cfg):
    torch.manual_seed(0)
    learner = Learner(cfg, "cuda" if torch.cuda.is_available() else "cpu")
    for update in range(cfg.updates):
        learner.update()
        if update % 20 == 0:
            print(f"update {update}: reward {learner.reward.item():.3f}")


if __name__ == "__main__":
    main(Config())
