"""Double deep Q-learning of the mountain car, with a buffer that many random drivers fill first."""

import argparse
import collections
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

Experience = collections.namedtuple("Experience", "state action reward next_state done")


class HillCars:
    """Cars in a valley, all at once: arrays of position and speed."""

    def __init__(self, count, seed):
        self.rng = np.random.default_rng(seed)
        self.position = self.rng.uniform(-0.6, -0.4, count)
        self.speed = np.zeros(count)

    def states(self):
        height = np.sin(3 * self.position)
        return np.stack([self.position, self.speed * 15, height, np.cos(3 * self.position)], axis=1).astype(np.float32)

    def step(self, actions):
        self.speed = np.clip(self.speed + (actions - 1) * 0.001 - 0.0025 * np.cos(3 * self.position), -0.07, 0.07)
        self.position = np.clip(self.position + self.speed, -1.2, 0.6)
        self.speed[self.position <= -1.2] = 0
        done = self.position >= 0.5
        following = self.states()
        self.position[done] = self.rng.uniform(-0.6, -0.4, done.sum())
        self.speed[done] = 0
        return following, np.where(done, 1.0, -0.01).astype(np.float32), done


class ReplayMemory:
    def __init__(self, maxlen):
        self.buf = collections.deque(maxlen=maxlen)

    def append(self, experience):
        self.buf.append(experience)

    def sample(self, batch_size):
        indices = np.random.randint(len(self.buf), size=batch_size)
        chosen = [self.buf[i] for i in indices]
        columns = [np.stack(column) for column in zip(*chosen)]
        return [torch.from_numpy(column) for column in columns]

    def __len__(self):
        return len(self.buf)


class DuelingNet(nn.Module):
    def __init__(self, inputs, actions, width):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.value = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
        self.advantage = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, actions))

    def forward(self, states):
        hidden = self.body(states)
        advantage = self.advantage(hidden)
        return self.value(hidden) + advantage - advantage.mean(dim=1, keepdim=True)


class Agent:
    def __init__(self, args):
        self.args = args
        self.online, self.target = DuelingNet(4, 3, args.width), DuelingNet(4, 3, args.width)
        self.target.load_state_dict(self.online.state_dict())
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=args.lr)
        self.memory = ReplayMemory(args.memory)

    def remember(self, states, actions, rewards, following, done):
        for row in zip(states, actions, rewards, following, done):
            self.memory.append(Experience(*row))

    @torch.no_grad()
    def act(self, states, epsilon):
        greedy = self.online(torch.from_numpy(states)).argmax(1).numpy()
        explore = np.random.random(len(states)) < epsilon
        return np.where(explore, np.random.randint(0, 3, len(states)), greedy)

    def learn(self):
        states, actions, rewards, following, done = self.memory.sample(self.args.batch_size)
        with torch.no_grad():
            best = self.online(following).argmax(1, keepdim=True)
            later = self.target(following).gather(1, best).squeeze(1)
            wanted = rewards + self.args.gamma * ~done * later
        values = self.online(states).gather(1, actions[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(values, wanted)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.online.parameters(), 10.0)
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(self.target.parameters()), list(self.online.parameters()), self.args.tau)
        return loss.detach()


def fill(agent, cars, count):
    states = cars.states()
    push = np.random.randint(0, 3, len(states))
    while len(agent.memory) < count:
        change = np.random.random(len(states)) < 0.05
        push[change] = np.random.randint(0, 3, change.sum())
        following, rewards, done = cars.step(push)
        agent.remember(states, push.copy(), rewards, following, done)
        states = cars.states()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, default=900)
    parser.add_argument("--warmup", type=int, default=300_000)
    parser.add_argument("--memory", type=int, default=500_000)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--tau", type=float, default=0.01)
    parser.add_argument("--lr", type=float, default=5e-4)
    args = parser.parse_args()
    random.seed(0), np.random.seed(0), torch.manual_seed(0)

    agent = Agent(args)
    fill(agent, HillCars(500, seed=0), args.warmup)
    cars, reached, losses = HillCars(8, seed=1), 0, torch.zeros(())
    states = cars.states()
    for update in range(1, args.updates + 1):
        actions = agent.act(states, epsilon=max(0.05, 1 - update / args.updates))
        following, rewards, done = cars.step(actions)
        agent.remember(states, actions, rewards, following, done)
        states = cars.states()
        reached += int(done.sum())
        losses += agent.learn()
        if update % 300 == 0:
            print(f"update {update} loss {losses.item() / 300:.5f} reached {reached} memory {len(agent.memory)}")
            losses.zero_()


if __name__ == "__main__":
    main()
