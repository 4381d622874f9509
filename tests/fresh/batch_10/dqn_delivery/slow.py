"""Deep Q-learning of parcel deliveries, with a long memory that older drives have filled."""

import argparse
import copy
import random
from collections import deque

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Streets:
    """A van on a grid with traffic; the parcel's goal moves whenever it is reached."""

    moves = np.array([[0, 1], [0, -1], [1, 0], [-1, 0], [0, 0]])

    def __init__(self, side, seed):
        self.side, self.rng = side, np.random.default_rng(seed)
        self.traffic = self.rng.random((side, side)).astype(np.float32)
        self.place, self.goal = self.rng.integers(side, size=2), self.rng.integers(side, size=2)

    def observe(self):
        near = np.take(self.traffic, self.place[0] + np.arange(-1, 2), axis=0, mode="wrap")
        near = np.take(near, self.place[1] + np.arange(-1, 2), axis=1, mode="wrap")
        return np.concatenate([(self.goal - self.place) / self.side, near.ravel()]).astype(np.float32)

    def step(self, action):
        self.place = (self.place + self.moves[action]).clip(0, self.side - 1)
        reward = -float(self.traffic[tuple(self.place)])
        done = bool((self.place == self.goal).all())
        if done:
            self.goal, reward = self.rng.integers(self.side, size=2), reward + 10
        return self.observe(), reward, done

    def recorded(self, vans, steps):
        """What vans did that took any way: transitions, van by van within each step."""
        place, goal = self.rng.integers(self.side, size=(2, vans, 2))
        near = np.pad(self.traffic, 1, mode="wrap")
        near = np.lib.stride_tricks.sliding_window_view(near, (3, 3)).reshape(self.side, self.side, 9)
        before = np.hstack([(goal - place) / self.side, near[place[:, 0], place[:, 1]]]).astype(np.float32)
        for action in self.rng.integers(5, size=(steps, vans)):
            place = (place + self.moves[action]).clip(0, self.side - 1)
            done = (place == goal).all(1)
            reward = 10.0 * done - self.traffic[place[:, 0], place[:, 1]]
            after = np.hstack([(goal - place) / self.side, near[place[:, 0], place[:, 1]]]).astype(np.float32)
            yield from zip(before, action.tolist(), reward.tolist(), after, done.tolist(), strict=True)
            goal[done] = self.rng.integers(self.side, size=(int(done.sum()), 2))
            before = after


class ReplayMemory:
    def __init__(self, capacity):
        self.memory = deque(maxlen=capacity)

    def push(self, *transition):
        self.memory.append(transition)

    def sample(self, size):
        state, action, reward, after, done = zip(*random.sample(self.memory, size), strict=True)
        return (
            torch.from_numpy(np.stack(state)),
            torch.tensor(action),
            torch.tensor(reward),
            torch.from_numpy(np.stack(after)),
            torch.tensor(done, dtype=torch.float32),
        )


def network(inputs=11, actions=5, width=128):
    return nn.Sequential(
        nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, actions)
    )


class Agent:
    def __init__(self, args):
        self.args = args
        self.q = network()
        self.target = copy.deepcopy(self.q).requires_grad_(False)
        self.memory = ReplayMemory(args.capacity)
        self.optimizer = torch.optim.Adam(self.q.parameters(), lr=args.lr)

    @torch.no_grad()
    def act(self, state, epsilon):
        if random.random() < epsilon:
            return random.randrange(5)
        return int(self.q(torch.from_numpy(state)).argmax())

    def learn(self):
        state, action, reward, after, done = self.memory.sample(self.args.batch_size)
        with torch.no_grad():
            best = self.q(after).argmax(1, keepdim=True)
            goal = reward + 0.98 * (1 - done) * self.target(after).gather(1, best)[:, 0]
        loss = F.smooth_l1_loss(self.q(state).gather(1, action[:, None])[:, 0], goal)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        torch._foreach_lerp_(list(self.target.parameters()), list(self.q.parameters()), 0.01)
        return loss.detach()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--capacity", type=int, default=400_000)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--lr", type=float, default=5e-4)
    args = parser.parse_args()
    random.seed(0)
    torch.manual_seed(0)
    streets, agent = Streets(24, seed=2), Agent(args)
    for transition in streets.recorded(vans=1000, steps=args.capacity // 1000):
        agent.memory.push(*transition)
    state = streets.observe()
    for step in range(args.steps):
        action = agent.act(state, epsilon=0.1)
        after, reward, done = streets.step(action)
        agent.memory.push(state, action, reward, after, done)
        state = after
        loss = agent.learn()
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
