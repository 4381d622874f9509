"""Soft actor-critic that steers a fleet of simulated submarines along a depth contour."""

import math
from dataclasses import dataclass
from itertools import chain

import torch
import torch.nn.functional as F
from torch import Tensor, nn

STATE, ACTION = 10, 3


@dataclass
class SacConfig:
    boats: int = 16
    steps: int = 560
    warmup: int = 40
    capacity: int = 20_000
    batch_size: int = 256
    hidden: int = 256
    gamma: float = 0.98
    tau: float = 0.01
    alpha: float = 0.1
    lr: float = 3e-4
    report_every: int = 70
    seed: int = 571


class Fleet:
    """Boats with ballast, rudder and engine over a sea floor of waves; all of them move at once."""

    def __init__(self, boats: int, seed: int):
        self.generator = torch.Generator().manual_seed(seed)
        self.boats = boats
        self.mixing = 0.3 * torch.randn(ACTION, 4, generator=self.generator)
        self.position = torch.zeros(boats, 4)
        self.velocity = torch.zeros(boats, 4)
        self.age = torch.zeros(boats, dtype=torch.long)
        self.restart(torch.ones(boats, dtype=torch.bool))

    def restart(self, which: Tensor) -> None:
        fresh = torch.randn(self.boats, 4, generator=self.generator)
        self.position = torch.where(which.unsqueeze(1), fresh, self.position)
        self.velocity = torch.where(which.unsqueeze(1), torch.zeros_like(fresh), self.velocity)
        self.age = torch.where(which, torch.zeros_like(self.age), self.age)

    def observe(self) -> Tensor:
        floor = torch.sin(self.position[:, :2])
        return torch.cat([self.position, self.velocity, floor], dim=1)

    def step(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        push = action @ self.mixing
        noise = 0.02 * torch.randn(self.boats, 4, generator=self.generator)
        self.velocity = 0.9 * self.velocity + push + noise
        self.position = self.position + 0.2 * self.velocity
        self.age += 1
        depth_error = (self.position[:, 2] - torch.sin(self.position[:, 0])).square()
        reward = torch.exp(-depth_error) - 0.02 * action.square().sum(1) - 0.01 * self.velocity.square().sum(1)
        following = self.observe()
        lost = self.position.abs().amax(1) > 6
        self.restart(lost | (self.age >= 100))
        return following, reward, lost.float()


class Memory:
    def __init__(self, capacity: int, seed: int):
        self.rows = torch.zeros(capacity, 2 * STATE + ACTION + 2)
        self.capacity, self.written = capacity, 0
        self.generator = torch.Generator().manual_seed(seed)

    def add(self, *columns: Tensor) -> None:
        block = torch.cat([c if c.dim() == 2 else c.unsqueeze(1) for c in columns], dim=1)
        places = torch.arange(self.written, self.written + len(block)) % self.capacity
        self.rows[places] = block
        self.written += len(block)

    def sample(self, count: int) -> tuple[Tensor, ...]:
        filled = min(self.written, self.capacity)
        rows = self.rows[torch.randint(filled, (count,), generator=self.generator)]
        state, action, reward, following, lost = rows.split([STATE, ACTION, 1, STATE, 1], dim=1)
        return state, action, reward.squeeze(1), following, lost.squeeze(1)


def mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, outputs)
    )


class Actor(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.net = mlp(STATE, hidden, 2 * ACTION)

    def forward(self, state: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.net(state).chunk(2, dim=-1)
        log_std = log_std.clamp(-5, 1)
        noise = torch.randn_like(mean)
        raw = mean + log_std.exp() * noise
        log_prob = -(0.5 * noise.square() + log_std + 0.5 * math.log(2 * math.pi))
        log_prob = log_prob - 2 * (math.log(2) - raw - F.softplus(-2 * raw))
        return torch.tanh(raw), log_prob.sum(-1)


class Critic(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.first = mlp(STATE + ACTION, hidden, 1)
        self.second = mlp(STATE + ACTION, hidden, 1)

    def forward(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        both = torch.cat([state, action], dim=1)
        return self.first(both).squeeze(1), self.second(both).squeeze(1)


class Agent:
    def __init__(self, config: SacConfig):
        self.config = config
        self.actor = Actor(config.hidden)
        self.critic = Critic(config.hidden)
        self.target = Critic(config.hidden).requires_grad_(False)
        self.target.load_state_dict(self.critic.state_dict())
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=config.lr, fused=True)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=config.lr, fused=True)

    @torch.no_grad()
    def act(self, state: Tensor) -> Tensor:
        return self.actor(state)[0]

    def update(self, memory: Memory) -> tuple[Tensor, Tensor]:
        config = self.config
        state, action, reward, following, lost = memory.sample(config.batch_size)
        with torch.no_grad():
            ahead, log_prob = self.actor(following)
            value = torch.minimum(*self.target(following, ahead)) - config.alpha * log_prob
            wanted = reward + config.gamma * (1 - lost) * value
        first, second = self.critic(state, action)
        critic_loss = F.mse_loss(first, wanted) + F.mse_loss(second, wanted)
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()

        self.critic.requires_grad_(False)
        chosen, log_prob = self.actor(state)
        actor_loss = (config.alpha * log_prob - torch.minimum(*self.critic(state, chosen))).mean()
        self.actor_optimizer.zero_grad()
        actor_loss.backward()
        self.critic.requires_grad_(True)
        self.actor_optimizer.step()

        with torch.no_grad():
            torch._foreach_lerp_(list(self.target.parameters()), list(self.critic.parameters()), config.tau)
        return critic_loss.detach(), actor_loss.detach()


def main() -> None:
    config = SacConfig()
    torch.manual_seed(config.seed)
    fleet, memory, agent = Fleet(config.boats, config.seed), Memory(config.capacity, config.seed), Agent(config)
    rewards, losses = [], []
    state = fleet.observe()
    for step in range(1, config.steps + 1):
        action = agent.act(state) if step > config.warmup else 2 * torch.rand(config.boats, ACTION) - 1
        following, reward, lost = fleet.step(action)
        memory.add(state, action, reward, following, lost)
        state = fleet.observe()
        rewards.append(reward.mean())
        if step > config.warmup:
            losses.append(torch.stack(agent.update(memory)))
        if step % config.report_every == 0:
            critic_loss, actor_loss = torch.stack(losses).mean(0).tolist()
            mean = torch.stack(rewards).mean().item()
            print(f"step {step}: reward {mean:.3f}, critic {critic_loss:.4f}, actor {actor_loss:.4f}")
            rewards.clear()
            losses.clear()
    weights = sum(p.numel() for p in chain(agent.actor.parameters(), agent.critic.parameters()))
    print(f"{weights} weights, {memory.written} transitions")


if __name__ == "__main__":
    main()
