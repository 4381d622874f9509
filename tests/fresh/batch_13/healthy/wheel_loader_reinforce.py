"""Policy gradient on a batch of simulated wheel loaders, all advanced together in tensors."""

import torch
from torch import nn
from torch.distributions import Normal


class Loaders:
    """Many vehicles that have to come to rest at a goal."""

    def __init__(self, count, seed):
        self.count = count
        self.generator = torch.Generator().manual_seed(seed)

    def reset(self):
        self.place = 4 * torch.rand(self.count, 2, generator=self.generator) - 2
        self.speed = torch.zeros(self.count, 2)
        return self.observe()

    def observe(self):
        return torch.cat([self.place, self.speed], 1)

    def step(self, push):
        self.speed = 0.9 * self.speed + 0.1 * push.clamp(-1, 1)
        self.place = self.place + 0.2 * self.speed
        return self.observe(), -self.place.square().sum(1) - 0.05 * push.square().sum(1)


class ActorCritic(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.mean, self.value = nn.Linear(width, 2), nn.Linear(width, 1)
        self.log_std = nn.Parameter(torch.full((2,), -0.5))

    def forward(self, observations):
        h = self.body(observations)
        return Normal(self.mean(h), self.log_std.exp()), self.value(h).squeeze(-1)


@torch.no_grad()
def rollout(env, model, horizon):
    observations = torch.empty(horizon, env.count, 4)
    actions = torch.empty(horizon, env.count, 2)
    rewards = torch.empty(horizon, env.count)
    state = env.reset()
    for t in range(horizon):
        observations[t] = state
        actions[t] = model(state)[0].sample()
        state, rewards[t] = env.step(actions[t])
    return observations, actions, rewards


def discounted(rewards, gamma=0.97):
    """Returns of all steps at once: a triangular matrix of discounts."""
    horizon = len(rewards)
    delay = torch.arange(horizon)[None] - torch.arange(horizon)[:, None]
    return torch.where(delay >= 0, gamma ** delay.clamp(min=0), 0.0) @ rewards


def main(iterations=150, horizon=32, minibatches=4):
    torch.manual_seed(5)
    env, model = Loaders(512, seed=5), ActorCritic()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for iteration in range(iterations):
        observations, actions, rewards = rollout(env, model, horizon)
        returns = discounted(rewards).flatten()
        returns = (returns - returns.mean()) / returns.std()
        observations, actions = observations.flatten(0, 1), actions.flatten(0, 1)
        for rows in torch.randperm(len(returns)).chunk(minibatches):
            policy, value = model(observations[rows])
            advantage = returns[rows] - value
            gain = (policy.log_prob(actions[rows]).sum(1) * advantage.detach()).mean()
            loss = 0.5 * advantage.square().mean() - gain - 0.001 * policy.entropy().sum(1).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
        if iteration % 25 == 0:
            print(f"iteration {iteration}: reward {rewards.mean().item():.3f}")


if __name__ == "__main__":
    main()
