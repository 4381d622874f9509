"""Soft actor-critic that tracks a moving target; 24 environments step at once."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

STATE, ACTION, ENVS, BATCH = 8, 4, 24, 256


class Buffer:
    """Rows of one tensor, written in a ring: state, action, reward, next state."""

    def __init__(self, capacity):
        self.rows = torch.zeros(capacity, 2 * STATE + ACTION + 1)
        self.position, self.size = 0, 0

    def add(self, state, action, reward, following):
        where = (self.position + torch.arange(len(state))) % len(self.rows)
        self.rows[where] = torch.cat([state, action, reward[:, None], following], dim=1)
        self.position = (self.position + len(state)) % len(self.rows)
        self.size = min(self.size + len(state), len(self.rows))

    def sample(self, count):
        rows = self.rows[torch.randint(self.size, (count,))]
        return rows.split([STATE, ACTION, 1, STATE], dim=1)


def mlp(inp, out, hidden=128):
    return nn.Sequential(
        nn.Linear(inp, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, out)
    )


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(STATE, 2 * ACTION)

    def forward(self, state):
        mean, log_std = self.net(state).chunk(2, dim=1)
        std = log_std.clamp(-5, 1).exp()
        noise = torch.randn_like(mean)
        raw = mean + std * noise
        action = torch.tanh(raw)
        log_prob = -0.5 * noise.square() - std.log() - torch.log(1 - action.square() + 1e-6)
        return action, log_prob.sum(dim=1, keepdim=True)


def advance(state, action):
    place = (state[:, :ACTION] + 0.2 * action).clamp(-1.5, 1.5)
    target = (state[:, ACTION:] + 0.05 * torch.randn(len(state), ACTION)).clamp(-1, 1)
    return torch.cat([place, target], dim=1), -(place - target).square().sum(dim=1)


def main(alpha=0.05, gamma=0.95, polyak=0.99):
    torch.manual_seed(8)
    actor, critics = Actor(), nn.ModuleList([mlp(STATE + ACTION, 1) for _ in range(2)])
    targets = copy.deepcopy(critics).requires_grad_(False)
    kept, current = list(targets.parameters()), [p.detach() for p in critics.parameters()]
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=1e-3, fused=True)
    critic_optimizer = torch.optim.Adam(critics.parameters(), lr=1e-3, fused=True)
    buffer, state = Buffer(20000), torch.zeros(ENVS, STATE)
    for step in range(700):
        with torch.no_grad():
            action, _ = actor(state)
            following, reward = advance(state, action)
        buffer.add(state, action, reward, following)
        state = following
        states, actions, rewards, nexts = buffer.sample(BATCH)
        with torch.no_grad():
            proposed, log_prob = actor(nexts)
            pairs = torch.cat([nexts, proposed], dim=1)
            wanted = rewards + gamma * (torch.minimum(targets[0](pairs), targets[1](pairs)) - alpha * log_prob)
        pairs = torch.cat([states, actions], dim=1)
        critic_loss = F.mse_loss(critics[0](pairs), wanted) + F.mse_loss(critics[1](pairs), wanted)
        critic_optimizer.zero_grad()
        critic_loss.backward()
        critic_optimizer.step()

        critics.requires_grad_(False)
        proposed, log_prob = actor(states)
        pairs = torch.cat([states, proposed], dim=1)
        actor_loss = (alpha * log_prob - torch.minimum(critics[0](pairs), critics[1](pairs))).mean()
        actor_optimizer.zero_grad()
        actor_loss.backward()
        actor_optimizer.step()
        critics.requires_grad_(True)
        torch._foreach_lerp_(kept, current, 1 - polyak)
        if step % 100 == 99:
            print(f"{step + 1}: reward {reward.mean().item():.3f} critic {critic_loss.item():.4f}")


if __name__ == "__main__":
    main()
