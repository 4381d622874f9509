"""Soft actor-critic for a two-link arm: training from a large store of transitions, with checkpoints to go on from."""

import copy
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

CONFIG = {
    "capacity": 500_000,
    "observation": 26,
    "action": 4,
    "batch": 128,
    "updates": 400,
    "checkpoint_every": 25,
    "lr": 3e-4,
    "gamma": 0.99,
    "tau": 0.005,
    "entropy": -4.0,
}


class Buffer:
    def __init__(self, capacity, observation, action):
        self.observation = torch.zeros(capacity, observation)
        self.following = torch.zeros(capacity, observation)
        self.action = torch.zeros(capacity, action)
        self.reward, self.done = torch.zeros(capacity, 1), torch.zeros(capacity, 1)
        self.capacity, self.size = capacity, 0

    def collect(self, seed):
        """Moves of an arm that is pushed about, all at once: the store is full before training begins."""
        g = torch.Generator().manual_seed(seed)
        torch.randn(self.observation.shape, generator=g, out=self.observation)
        torch.rand(self.action.shape, generator=g, out=self.action).mul_(2).sub_(1)
        push = self.action.repeat(1, 7)[:, : self.observation.shape[1]]
        torch.add(0.95 * self.observation, push, alpha=0.1, out=self.following)
        self.reward = -self.following[:, :4].norm(dim=1, keepdim=True)
        self.size = self.capacity

    def sample(self, count):
        rows = torch.randint(self.size, (count,))
        return [part[rows] for part in (self.observation, self.action, self.reward, self.following, self.done)]

    def state_dict(self):
        names = ("observation", "action", "reward", "following", "done", "size")
        return {name: getattr(self, name) for name in names}


def mlp(inputs, outputs, width=192):
    return nn.Sequential(
        nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs)
    )


class SAC:
    def __init__(self, cfg):
        self.cfg = cfg
        both = cfg["observation"] + cfg["action"]
        self.actor = mlp(cfg["observation"], 2 * cfg["action"])
        self.critics = nn.ModuleList(mlp(both, 1) for _ in range(2))
        self.targets = copy.deepcopy(self.critics).requires_grad_(False)
        self.log_alpha = torch.zeros((), requires_grad=True)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=cfg["lr"])
        self.critic_opt = torch.optim.Adam(self.critics.parameters(), lr=cfg["lr"])
        self.alpha_opt = torch.optim.Adam([self.log_alpha], lr=cfg["lr"])

    def act(self, observation):
        mean, log_std = self.actor(observation).chunk(2, 1)
        std = log_std.clamp(-5, 2).exp()
        raw = mean + std * torch.randn_like(mean)
        log_prob = -(((raw - mean) / std).square() / 2 + std.log() + 0.919)
        log_prob = log_prob - 2 * (0.6931 - raw - F.softplus(-2 * raw))
        return raw.tanh(), log_prob.sum(1, keepdim=True)

    def values(self, critics, observation, action):
        both = torch.cat([observation, action], 1)
        return torch.stack([critic(both) for critic in critics])

    def update(self, observation, action, reward, following, done):
        cfg, alpha = self.cfg, self.log_alpha.exp().detach()
        with torch.no_grad():
            after, log_prob = self.act(following)
            value = self.values(self.targets, following, after).amin(0) - alpha * log_prob
            goal = reward + cfg["gamma"] * (1 - done) * value
        critic_loss = (self.values(self.critics, observation, action) - goal).square().mean()
        self.critic_opt.zero_grad()
        critic_loss.backward()
        self.critic_opt.step()
        self.critics.requires_grad_(False)
        chosen, log_prob = self.act(observation)
        actor_loss = (alpha * log_prob - self.values(self.critics, observation, chosen).amin(0)).mean()
        self.actor_opt.zero_grad()
        actor_loss.backward()
        self.actor_opt.step()
        self.critics.requires_grad_(True)
        alpha_loss = -self.log_alpha * (log_prob.detach().mean() + cfg["entropy"])
        self.alpha_opt.zero_grad()
        alpha_loss.backward()
        self.alpha_opt.step()
        torch._foreach_lerp_(list(self.targets.parameters()), list(self.critics.parameters()), cfg["tau"])
        return critic_loss.detach()

    def state_dict(self):
        names = ("actor", "critics", "targets", "actor_opt", "critic_opt", "alpha_opt")
        return {name: getattr(self, name).state_dict() for name in names} | {"log_alpha": self.log_alpha.detach()}


def save(folder, agent, buffer, update):
    state = {"agent": agent.state_dict(), "update": update}
    torch.save(state, folder / "latest.pt")


def main(cfg):
    torch.manual_seed(0)
    agent = SAC(cfg)
    buffer = Buffer(cfg["capacity"], cfg["observation"], cfg["action"])
    buffer.collect(seed=41)
    with tempfile.TemporaryDirectory() as folder:
        for update in range(1, cfg["updates"] + 1):
            loss = agent.update(*buffer.sample(cfg["batch"]))
            if update % cfg["checkpoint_every"] == 0:
                save(Path(folder), agent, buffer, update)
                print(f"update {update}: critic loss {loss.item():.4f}")


if __name__ == "__main__":
    main(CONFIG)
