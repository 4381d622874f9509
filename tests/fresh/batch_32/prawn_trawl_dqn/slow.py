"""A trawler learns where to drag its net: double DQN on a small grid of sonar images."""

import argparse
import random
from collections import deque, namedtuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

Transition = namedtuple("Transition", "state action reward next_state done")


class TrawlGrid:
    """Shoals drift over a square sea; the boat moves in four directions or drops its net."""

    actions = 5

    def __init__(self, size: int, shoals: int, seed: int):
        self.size = size
        self.shoals = shoals
        self.rng = np.random.default_rng(seed)
        self.reset()

    def reset(self):
        self.boat = self.rng.integers(0, self.size, 2)
        self.fish = self.rng.integers(0, self.size, (self.shoals, 2))
        self.left = 60
        return self.observe()

    def observe(self):
        image = np.zeros((3, self.size, self.size), dtype=np.float32)
        image[0, self.boat[0], self.boat[1]] = 1.0
        np.add.at(image[1], (self.fish[:, 0], self.fish[:, 1]), 1.0)
        image[2] = self.left / 60
        return image

    def step(self, action: int):
        moves = ((0, 1), (1, 0), (0, -1), (-1, 0), (0, 0))
        self.boat = (self.boat + moves[action]) % self.size
        self.fish = (self.fish + self.rng.integers(-1, 2, self.fish.shape)) % self.size
        near = np.abs(self.fish - self.boat).max(axis=1) <= 1
        reward = float(near.sum()) if action == 4 else -0.05
        self.left -= 1
        return self.observe(), reward, self.left == 0


class ReplayMemory:
    def __init__(self, capacity: int):
        self.buffer = deque(maxlen=capacity)

    def push(self, *facts):
        self.buffer.append(Transition(*facts))

    def sample(self, batch_size: int):
        return Transition(*zip(*random.sample(self.buffer, batch_size), strict=True))

    def __len__(self):
        return len(self.buffer)


class QNetwork(nn.Module):
    def __init__(self, size: int, actions: int):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 24, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(24, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * ((size + 1) // 2) ** 2, 128),
            nn.ReLU(),
        )
        self.advantage = nn.Linear(128, actions)
        self.value = nn.Linear(128, 1)

    def forward(self, images):
        hidden = self.body(images)
        advantage = self.advantage(hidden)
        return self.value(hidden) + advantage - advantage.mean(dim=1, keepdim=True)


class Agent:
    def __init__(self, args):
        self.args = args
        self.online = QNetwork(args.size, TrawlGrid.actions)
        self.target = QNetwork(args.size, TrawlGrid.actions)
        self.target.load_state_dict(self.online.state_dict())
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=args.lr)
        self.memory = ReplayMemory(args.capacity)

    @torch.no_grad()
    def act(self, state, epsilon: float) -> int:
        if random.random() < epsilon:
            return random.randrange(TrawlGrid.actions)
        return self.online(torch.from_numpy(state)[None]).argmax().item()

    def learn(self):
        batch = self.memory.sample(self.args.batch_size)
        states = torch.tensor(batch.state, dtype=torch.float32)
        next_states = torch.tensor(batch.next_state, dtype=torch.float32)
        actions = torch.tensor(batch.action).unsqueeze(1)
        rewards = torch.tensor(batch.reward)
        alive = 1.0 - torch.tensor(batch.done, dtype=torch.float32)

        values = self.online(states).gather(1, actions).squeeze(1)
        with torch.no_grad():
            best = self.online(next_states).argmax(dim=1, keepdim=True)
            following = self.target(next_states).gather(1, best).squeeze(1)
        loss = F.smooth_l1_loss(values, rewards + self.args.gamma * alive * following)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--shoals", type=int, default=9)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--capacity", type=int, default=4000)
    parser.add_argument("--warmup", type=int, default=500)
    parser.add_argument("--updates", type=int, default=240)
    parser.add_argument("--sync-every", type=int, default=60)
    parser.add_argument("--gamma", type=float, default=0.97)
    parser.add_argument("--lr", type=float, default=5e-4)
    args = parser.parse_args()

    random.seed(3)
    torch.manual_seed(3)
    env = TrawlGrid(args.size, args.shoals, seed=3)
    agent = Agent(args)
    state, update, losses = env.reset(), 0, []
    while update < args.updates:
        epsilon = max(0.1, 1.0 - update / args.updates)
        action = agent.act(state, epsilon)
        following, reward, done = env.step(action)
        agent.memory.push(state, action, reward, following, float(done))
        state = env.reset() if done else following
        if len(agent.memory) < args.warmup:
            continue
        losses.append(agent.learn())
        update += 1
        if update % args.sync_every == 0:
            agent.target.load_state_dict(agent.online.state_dict())
            print(f"update {update}: loss {torch.stack(losses[-args.sync_every :]).mean():.4f}")


if __name__ == "__main__":
    main()
