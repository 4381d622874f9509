"""REINFORCE on sixteen point masses: roll out a few steps, then update policy and baseline once."""

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

rng = np.random.default_rng(5)
torch.manual_seed(5)


class PointMass:
    """A point that should come to rest in the middle. Actions: push left, do nothing, push right."""

    def reset(self):
        self.state = rng.normal(size=4).astype(np.float32)
        return self.state

    def step(self, action):
        self.state = self.state + 0.05 * np.roll(self.state, 1) * (action - 1)
        return self.state, -float(np.abs(self.state).mean())


class Agent(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.policy = nn.Sequential(
            nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 3)
        )
        self.value = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, 1))


@torch.no_grad()
def collect(agent, envs, horizon=8):
    observations, actions, rewards = [], [], []
    current = [env.reset() for env in envs]
    for _ in range(horizon):
        logits = agent.policy(torch.from_numpy(np.stack(current)))
        chosen = Categorical(logits=logits).sample().tolist()
        observations.append(np.stack(current))
        actions.append(chosen)
        results = [env.step(action) for env, action in zip(envs, chosen)]
        current = [state for state, _ in results]
        rewards.append([reward for _, reward in results])
    return torch.from_numpy(np.stack(observations)), torch.tensor(actions), torch.tensor(rewards)


def main():
    agent, envs = Agent(), [PointMass() for _ in range(16)]
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3)
    for update in range(120):
        states, actions, rewards = collect(agent, envs)
        returns = rewards.flip(0).cumsum(0).flip(0)
        values = agent.value(states).squeeze(-1)
        chosen = Categorical(logits=agent.policy(states)).log_prob(actions)
        loss = -(chosen * (returns - values.detach())).mean() + (returns - values).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()
        if update % 20 == 0:
            print(f"update {update}: return {rewards.sum(0).mean():.3f}")


if __name__ == "__main__":
    main()
