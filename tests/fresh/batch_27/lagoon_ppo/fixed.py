"""Proximal policy optimisation for a boat that collects buoys on a lagoon seen from above."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical


@dataclass
class PPOConfig:
    envs: int = 32
    horizon: int = 16
    updates: int = 14
    epochs: int = 2
    minibatch: int = 64
    gamma: float = 0.97
    lam: float = 0.9
    clip: float = 0.2
    value_weight: float = 0.5
    entropy_weight: float = 0.01
    lr: float = 4e-4
    side: int = 20
    seed: int = 2


class Lagoon:
    """Many lagoons at once; planes of the picture are boat, buoys and shore."""

    moves = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0], [0, 0]])

    def __init__(self, envs, side, seed):
        self.envs, self.side = envs, side
        self.generator = torch.Generator().manual_seed(seed)
        self.rows = torch.arange(envs)
        self.shore = torch.zeros(side, side)
        self.shore[[0, -1]] = 1.0
        self.shore[:, [0, -1]] = 1.0
        self.boat = torch.randint(1, side - 1, (envs, 2), generator=self.generator)
        self.buoys = (torch.rand(envs, side, side, generator=self.generator) < 0.08).float()

    def observe(self):
        planes = torch.zeros(self.envs, 3, self.side, self.side)
        planes[self.rows, 0, self.boat[:, 0], self.boat[:, 1]] = 1.0
        planes[:, 1] = self.buoys
        planes[:, 2] = self.shore
        return planes

    def step(self, actions):
        self.boat = (self.boat + self.moves[actions]).clamp(0, self.side - 1)
        y, x = self.boat.unbind(1)
        reward = self.buoys[self.rows, y, x] - 0.2 * self.shore[y, x]
        self.buoys[self.rows, y, x] = 0.0
        done = torch.rand(self.envs, generator=self.generator) < 0.01
        fresh = (torch.rand(self.envs, self.side, self.side, generator=self.generator) < 0.08).float()
        self.buoys = torch.where(done[:, None, None], fresh, self.buoys)
        return reward, done.float()


class ActorCritic(nn.Module):
    def __init__(self, side, actions=5):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(3, 24, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(24, 48, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(48, 48, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(48 * (side // 2) ** 2, 192),
            nn.ReLU(),
        )
        self.actor = nn.Linear(192, actions)
        self.critic = nn.Linear(192, 1)

    def forward(self, planes):
        features = self.trunk(planes)
        return Categorical(logits=self.actor(features)), self.critic(features).squeeze(-1)


@torch.no_grad()
def collect(env, model, cfg):
    record = {key: [] for key in ("planes", "actions", "logp", "values", "rewards", "dones")}
    for _ in range(cfg.horizon):
        planes = env.observe()
        policy, values = model(planes)
        actions = policy.sample()
        rewards, dones = env.step(actions)
        for key, value in zip(record, (planes, actions, policy.log_prob(actions), values, rewards, dones), strict=True):
            record[key].append(value)
    rollout = {key: torch.stack(values) for key, values in record.items()}
    last = model(env.observe())[1]
    following = torch.cat([rollout["values"][1:], last[None]])
    alive = 1 - rollout["dones"]
    delta = rollout["rewards"] + cfg.gamma * following * alive - rollout["values"]
    advantage, running = torch.zeros_like(delta), torch.zeros(cfg.envs)
    for t in reversed(range(cfg.horizon)):
        running = delta[t] + cfg.gamma * cfg.lam * alive[t] * running
        advantage[t] = running
    rollout["advantages"], rollout["returns"] = advantage, advantage + rollout["values"]
    return {key: value.flatten(0, 1) for key, value in rollout.items()}


def losses(model, batch, cfg):
    policy, values = model(batch["planes"])
    ratio = (policy.log_prob(batch["actions"]) - batch["logp"]).exp()
    advantage = batch["advantages"]
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    clipped = ratio.clamp(1 - cfg.clip, 1 + cfg.clip)
    policy_loss = -torch.min(ratio * advantage, clipped * advantage).mean()
    policy_loss = policy_loss - cfg.entropy_weight * policy.entropy().mean()
    value_loss = cfg.value_weight * F.mse_loss(values, batch["returns"])
    return policy_loss, value_loss


def update(model, optimizer, rollout, cfg):
    for _ in range(cfg.epochs):
        for chosen in torch.randperm(cfg.envs * cfg.horizon).split(cfg.minibatch):
            batch = {key: value[chosen] for key, value in rollout.items()}
            policy_loss, value_loss = losses(model, batch, cfg)
            optimizer.zero_grad(set_to_none=True)
            (policy_loss + value_loss).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()


def main():
    cfg = PPOConfig()
    torch.manual_seed(cfg.seed)
    env = Lagoon(cfg.envs, cfg.side, cfg.seed)
    model = ActorCritic(cfg.side)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr, eps=1e-5, fused=True)
    for number in range(cfg.updates):
        rollout = collect(env, model, cfg)
        update(model, optimizer, rollout, cfg)
        print(f"update {number:2d}: reward per step {rollout['rewards'].mean().item():.4f}")


if __name__ == "__main__":
    main()
