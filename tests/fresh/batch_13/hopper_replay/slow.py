"""Soft actor-critic for a simulated hopper with a replay memory of transitions."""

import random
from collections import deque, namedtuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

Transition = namedtuple("Transition", "state action reward next_state done")
STATES, ACTIONS = 96, 8


class Hopper:
    """A linear system with noise that pays for moving forward."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.drift = self.rng.normal(0, 0.9 / STATES**0.5, (STATES, STATES)).astype(np.float32)
        self.push = self.rng.normal(0, 0.3, (ACTIONS, STATES)).astype(np.float32)

    def reset(self):
        self.state, self.clock = self.rng.normal(0, 0.1, STATES).astype(np.float32), 0
        return self.state

    def step(self, action):
        self.state = self.state @ self.drift + action @ self.push
        self.state = self.state + self.rng.normal(0, 0.02, STATES).astype(np.float32)
        self.clock += 1
        return self.state, float(self.state[0] - 0.05 * np.square(action).sum()), self.clock >= 200


class ReplayMemory:
    def __init__(self, capacity):
        self.memory = deque(maxlen=capacity)

    def push(self, *transition):
        self.memory.append(Transition(*transition))

    def sample(self, batch_size):
        batch = Transition(*zip(*random.sample(self.memory, batch_size), strict=True))
        states = torch.tensor(batch.state)
        actions = torch.tensor(batch.action)
        next_states = torch.tensor(batch.next_state)
        return states, actions, torch.tensor(batch.reward), next_states, torch.tensor(batch.done).float()


def mlp(inside, outside, width=256):
    return nn.Sequential(
        nn.Linear(inside, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outside)
    )


class Agent:
    def __init__(self, gamma=0.99, tau=0.005, alpha=0.1):
        self.gamma, self.tau, self.alpha = gamma, tau, alpha
        self.actor = mlp(STATES, 2 * ACTIONS)
        self.critic, self.target = mlp(STATES + ACTIONS, 1), mlp(STATES + ACTIONS, 1)
        self.target.load_state_dict(self.critic.state_dict())
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=3e-4)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=3e-4)

    def act(self, states):
        mean, log_std = self.actor(states).chunk(2, -1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-5, 1).exp())
        raw = normal.rsample()
        action = raw.tanh()
        return action, (normal.log_prob(raw) - torch.log(1 - action.square() + 1e-6)).sum(-1)

    def update(self, states, actions, rewards, next_states, done):
        with torch.no_grad():
            following, entropy = self.act(next_states)
            value = self.target(torch.cat([next_states, following], 1)).squeeze(1) - self.alpha * entropy
            goal = rewards + self.gamma * (1 - done) * value
        critic_loss = F.mse_loss(self.critic(torch.cat([states, actions], 1)).squeeze(1), goal)
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()
        proposed, entropy = self.act(states)
        actor_loss = (self.alpha * entropy - self.critic(torch.cat([states, proposed], 1)).squeeze(1)).mean()
        self.actor_optimizer.zero_grad()
        actor_loss.backward()
        self.actor_optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(self.target.parameters()), list(self.critic.parameters()), self.tau)
        return critic_loss.item()


def main():
    random.seed(0)
    torch.manual_seed(0)
    env, agent, memory = Hopper(0), Agent(), ReplayMemory(20_000)
    state = env.reset()
    for step in range(1300):
        with torch.no_grad():
            action = agent.act(torch.from_numpy(state)[None])[0][0].numpy()
        following, reward, done = env.step(action)
        memory.push(state, action, reward, following, done)
        state = env.reset() if done else following
        if step >= 600:
            loss = agent.update(*memory.sample(512))
            if step % 100 == 0:
                print(f"step {step}: critic loss {loss:.4f} reward {reward:.3f}")


if __name__ == "__main__":
    main()
