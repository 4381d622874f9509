"""REDQ on a simulated glider: an ensemble of critics as batched matrices, a buffer of preallocated tensors."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

OBS, ACT = 10, 3


class Gliders:
    """Sixteen gliders at once that look for rising air."""

    def __init__(self, n, generator):
        self.n, self.g = n, generator
        self.state = torch.randn(n, OBS, generator=generator)
        self.wind = torch.randn(OBS, OBS, generator=generator) * 0.05
        self.control = torch.randn(ACT, OBS, generator=generator) * 0.2

    def step(self, action):
        noise = 0.05 * torch.randn(self.n, OBS, generator=self.g)
        self.state = (0.97 * self.state + self.state @ self.wind + action @ self.control + noise).clamp(-5, 5)
        reward = -self.state[:, :4].square().mean(1) - 0.02 * action.square().sum(1)
        return self.state, reward


class Replay:
    def __init__(self, capacity):
        self.obs, self.following = torch.empty(capacity, OBS), torch.empty(capacity, OBS)
        self.action, self.reward = torch.empty(capacity, ACT), torch.empty(capacity)
        self.capacity, self.place, self.size = capacity, 0, 0

    def add(self, obs, action, reward, following):
        n = len(obs)
        slots = slice(self.place, self.place + n)
        self.obs[slots], self.action[slots] = obs, action
        self.reward[slots], self.following[slots] = reward, following
        self.place = (self.place + n) % self.capacity
        self.size = min(self.size + n, self.capacity)

    def sample(self, n):
        i = torch.randint(self.size, (n,))
        return self.obs[i], self.action[i], self.reward[i], self.following[i]


class EnsembleLinear(nn.Module):
    def __init__(self, members, a, b):
        super().__init__()
        self.weight = nn.Parameter((torch.rand(members, a, b) * 2 - 1) / math.sqrt(a))
        self.bias = nn.Parameter(torch.zeros(members, 1, b))

    def forward(self, x):
        return torch.baddbmm(self.bias, x, self.weight)


class Critics(nn.Module):
    def __init__(self, members, hidden):
        super().__init__()
        self.members = members
        self.layers = nn.Sequential(
            EnsembleLinear(members, OBS + ACT, hidden), nn.ReLU(), EnsembleLinear(members, hidden, hidden), nn.ReLU(),
            EnsembleLinear(members, hidden, 1),
        )  # fmt: skip

    def forward(self, obs, action):
        x = torch.cat([obs, action], -1).expand(self.members, -1, -1)
        return self.layers(x).squeeze(-1)


class Actor(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(OBS, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.head = nn.Linear(hidden, 2 * ACT)

    def forward(self, obs):
        mean, log_std = self.head(self.body(obs)).chunk(2, -1)
        std = log_std.clamp(-5, 1).exp()
        noise = torch.randn_like(mean)
        raw = mean + std * noise
        log_prob = (-0.5 * noise.square() - std.log() - 0.919).sum(-1)
        log_prob = log_prob - (2 * (math.log(2) - raw - F.softplus(-2 * raw))).sum(-1)
        return raw.tanh(), log_prob


def main():
    torch.manual_seed(0)
    env = Gliders(16, torch.Generator().manual_seed(1))
    replay = Replay(16 * 512)
    critics, target, actor = Critics(10, 192), Critics(10, 192), Actor(192)
    target.load_state_dict(critics.state_dict())
    target.requires_grad_(False)
    critic_optimizer = torch.optim.Adam(critics.parameters(), lr=3e-4, fused=True)
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=3e-4, fused=True)
    online, averaged = list(critics.parameters()), list(target.parameters())
    obs, earned = env.state, torch.zeros(())
    for step in range(1, 501):
        with torch.no_grad():
            action, _ = actor(obs)
            following, reward = env.step(action)
        replay.add(obs, action, reward, following)
        obs = following
        earned += reward.mean()

        s, a, r, s2 = replay.sample(256)
        with torch.no_grad():
            a2, log_prob = actor(s2)
            pair = torch.randperm(critics.members)[:2]
            y = r + 0.99 * (target(s2, a2)[pair].amin(0) - 0.1 * log_prob)
        loss = (critics(s, a) - y).square().mean(1).sum()
        critic_optimizer.zero_grad(set_to_none=True)
        loss.backward()
        critic_optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(averaged, online, 0.005)

        if step % 10 == 0:
            a, log_prob = actor(s)
            critics.requires_grad_(False)
            actor_loss = (0.1 * log_prob - critics(s, a).mean(0)).mean()
            actor_optimizer.zero_grad(set_to_none=True)
            actor_loss.backward()
            actor_optimizer.step()
            critics.requires_grad_(True)
        if step % 100 == 0:
            print(f"step {step} reward {earned.item() / 100:.3f} critic loss {loss.item():.3f}")
            earned.zero_()


if __name__ == "__main__":
    main()
