"""Deep Q-learning on a chain of states, with a replay memory and a target network."""

import random

import numpy as np
import torch
from torch import nn

random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
STATE, ACTIONS, CAPACITY, BATCH, GAMMA = 24, 4, 20_000, 256, 0.98


class Memory:
    """The last transitions, and batches of them at random."""

    def __init__(self):
        self.rows, self.count = torch.zeros(CAPACITY, 2 * STATE + 2), 0

    def add(self, *transition):
        self.rows[self.count % CAPACITY] = torch.from_numpy(np.hstack(transition).astype(np.float32))
        self.count += 1

    def sample(self):
        rows = self.rows[torch.randint(min(self.count, CAPACITY), (BATCH,))]
        states, actions, rewards, following = rows.split([STATE, 1, 1, STATE], 1)
        return states, actions.flatten().long(), rewards.flatten(), following


def act(state):
    """A made-up world: the action moves the state, and being near zero is worth most."""
    action = random.randrange(ACTIONS)
    following = (0.95 * state + 0.1 * np.roll(state, action) + 0.05 * np.random.randn(STATE)).astype(np.float32)
    return action, -float(np.abs(following).mean()), following


def q_network():
    return nn.Sequential(nn.Linear(STATE, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, ACTIONS))


memory, state = Memory(), np.zeros(STATE, dtype=np.float32)
for _ in range(15_000):
    action, reward, following = act(state)
    memory.add(state, action, reward, following)
    state = following

online, target = q_network(), q_network()
target.load_state_dict(online.state_dict())
optimizer = torch.optim.Adam(online.parameters(), lr=5e-4, fused=True)
for step in range(300):
    action, reward, following = act(state)
    memory.add(state, action, reward, following)
    state = following
    states, actions, rewards, nexts = memory.sample()
    with torch.no_grad():
        wanted = rewards + GAMMA * target(nexts).max(1).values
    loss = nn.functional.smooth_l1_loss(online(states).gather(1, actions[:, None]).squeeze(1), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        target.load_state_dict(online.state_dict())
        print(f"step {step}: loss {loss.item():.4f}")
