"""PPO with a clipped ratio for a four-legged walker whose joints follow a simple simulated gait."""

import copy
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.distributions import Normal


@dataclass
class Config:
    envs: int = 32
    horizon: int = 128
    iterations: int = 20
    epochs: int = 4
    minibatch_size: int = 512
    gamma: float = 0.99
    lam: float = 0.95
    clip_eps: float = 0.2
    entropy_coef: float = 0.003
    hidden: int = 256
    lr: float = 3e-4
    seed: int = 11


class Walkers:
    """Batched toy dynamics: twelve joints, pushed by torques, that should keep a phase to each other."""

    obs_size, action_size = 48, 12

    def __init__(self, n, generator):
        self.n, self.g = n, generator
        self.mix = torch.randn(24, self.obs_size, generator=generator) / 5
        self.reset()

    def reset(self):
        self.joint = torch.randn(self.n, 12, generator=self.g) * 0.1
        self.speed = torch.zeros(self.n, 12)
        self.t = 0
        return self.observe()

    def observe(self):
        return torch.tanh(torch.cat([self.joint, self.speed], 1) @ self.mix)

    def step(self, action):
        self.t += 1
        self.speed = 0.9 * self.speed + 0.1 * action.clamp(-2, 2) - 0.05 * self.joint
        self.joint = self.joint + 0.1 * self.speed
        wanted = torch.sin(torch.tensor(self.t / 8.0) + torch.arange(12) * 0.5)
        reward = torch.exp(-(self.joint - wanted).square().mean(1)) - 0.001 * action.square().sum(1)
        return self.observe(), reward


class ActorCritic(nn.Module):
    """A policy and a value in one model."""

    def __init__(self, obs_size, action_size, hidden):
        super().__init__()
        self.mean = nn.Sequential(
            nn.Linear(obs_size, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, action_size)
        )
        self.log_std = nn.Parameter(torch.full((action_size,), -0.5))
        self.value = nn.Sequential(
            nn.Linear(obs_size, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1)
        )

    def forward(self, obs):
        return Normal(self.mean(obs), self.log_std.exp()), self.value(obs).squeeze(-1)


class PPO:
    def __init__(self, cfg, env):
        self.cfg = cfg
        self.model = ActorCritic(env.obs_size, env.action_size, cfg.hidden)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=cfg.lr)

    @torch.no_grad()
    def collect(self, env):
        obs, steps = env.reset(), []
        for _ in range(self.cfg.horizon):
            action = self.model(obs)[0].sample()
            following, reward = env.step(action)
            steps.append((obs, action, reward))
            obs = following
        seen, actions, rewards = (torch.stack(parts) for parts in zip(*steps))
        _, values = self.model(torch.cat([seen, obs[None]]))
        advantages, running = torch.zeros_like(rewards), 0.0
        for t in reversed(range(self.cfg.horizon)):
            delta = rewards[t] + self.cfg.gamma * values[t + 1] - values[t]
            running = delta + self.cfg.gamma * self.cfg.lam * running
            advantages[t] = running
        returns = advantages + values[:-1]
        return seen.flatten(0, 1), actions.flatten(0, 1), advantages.flatten(), returns.flatten(), rewards.mean()

    def update(self, states, actions, advantages, returns):
        cfg = self.cfg
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        old_model = copy.deepcopy(self.model).eval()
        for _ in range(cfg.epochs):
            for picked in torch.randperm(len(states)).split(cfg.minibatch_size):
                distribution, value = self.model(states[picked])
                log_probs = distribution.log_prob(actions[picked]).sum(-1)
                with torch.no_grad():
                    old_distribution, _ = old_model(states[picked])
                    old_log_probs = old_distribution.log_prob(actions[picked]).sum(-1)
                ratio = (log_probs - old_log_probs).exp()
                clipped = ratio.clamp(1 - cfg.clip_eps, 1 + cfg.clip_eps)
                loss_policy = -torch.minimum(ratio * advantages[picked], clipped * advantages[picked]).mean()
                loss_value = (value - returns[picked]).square().mean()
                loss = loss_policy + 0.5 * loss_value - cfg.entropy_coef * distribution.entropy().sum(-1).mean()
                self.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                self.optimizer.step()
        return loss.item()


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    env = Walkers(cfg.envs, torch.Generator().manual_seed(cfg.seed))
    agent = PPO(cfg, env)
    for iteration in range(cfg.iterations):
        *batch, reward = agent.collect(env)
        loss = agent.update(*batch)
        print(f"iteration {iteration:3d}  reward {reward.item():.3f}  loss {loss:.4f}")


if __name__ == "__main__":
    main()
