"""Rainbow-like Q-learning on a windy grid: transitions are replayed by the rank of their last error."""

import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
rng = np.random.default_rng(0)
SIZE, ACTIONS, CAPACITY, BATCH = 12, 4, 8000, 64
MOVES = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])


class RankedMemory:
    """A ring of transitions; those with large errors are drawn more often, by rank."""

    def __init__(self, width, sharpness=0.7):
        self.states = np.zeros((2, CAPACITY, width), np.float32)
        self.actions = np.zeros(CAPACITY, np.int64)
        self.rewards = np.zeros(CAPACITY, np.float32)
        self.errors = np.ones(CAPACITY, np.float32)
        chance = np.arange(1, CAPACITY + 1) ** -sharpness
        self.edges = np.cumsum(chance / chance.sum())
        self.at = 0

    def add(self, states, actions, rewards, following):
        rows = (self.at + np.arange(len(actions))) % CAPACITY
        self.states[0, rows], self.states[1, rows] = states, following
        self.actions[rows], self.rewards[rows], self.errors[rows] = actions, rewards, self.errors.max()
        self.at += len(actions)

    def draw(self):
        ranked = sorted(range(CAPACITY), key=lambda row: -self.errors[row])
        rows = np.array([ranked[rank] for rank in np.searchsorted(self.edges, rng.random(BATCH) * self.edges[-1])])
        batch = self.states[0, rows], self.actions[rows], self.rewards[rows], self.states[1, rows]
        return rows, [torch.from_numpy(column) for column in batch]


def observe(cells):
    """Distances from the marks of the grid."""
    marks = np.stack(np.meshgrid(np.arange(0, SIZE, 2), np.arange(0, SIZE, 2)), -1).reshape(1, -1, 2)
    return np.exp(-np.square(cells[:, None] - marks).sum(2) / 4).astype(np.float32)


def move(cells, actions):
    """The next cells and the rewards; wind blows upwards in the middle columns."""
    wind = np.stack([np.zeros(len(cells), int), ((cells[:, 0] > 4) & (cells[:, 0] < 9)).astype(int)], 1)
    following = np.clip(cells + MOVES[actions] + wind, 0, SIZE - 1)
    return following, (following == [SIZE - 1, 3]).all(1).astype(np.float32)


def network():
    return nn.Sequential(nn.Linear(36, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, ACTIONS))


online, target = network(), network().requires_grad_(False)
optimizer = torch.optim.Adam(online.parameters(), lr=5e-4, fused=True)
memory = RankedMemory(36)
cells = rng.integers(0, SIZE, (32, 2))
for step in range(200):
    if step % 25 == 0:
        target.load_state_dict(online.state_dict())
    actions = rng.integers(0, ACTIONS, len(cells))
    following, rewards = move(cells, actions)
    memory.add(observe(cells), actions, rewards, observe(following))
    cells = following
    rows, (state, action, reward, after) = memory.draw()
    wanted = reward + 0.97 * target(after).amax(1)
    error = online(state).gather(1, action[:, None]).squeeze(1) - wanted
    loss = nn.functional.huber_loss(error, torch.zeros_like(error))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    memory.errors[rows] = error.detach().abs().numpy()
    if step % 50 == 0:
        print(f"step {step}: loss {loss.item():.5f}")
