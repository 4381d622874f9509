"""Dispatches lifts in many simulated houses at once with a double Q network and a ring buffer of tensors."""

import argparse
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


class LiftHouses:
    """Houses with one lift each: go down, wait and open, or go up."""

    def __init__(self, houses, floors, seed):
        self.houses, self.floors = houses, floors
        self.generator = torch.Generator().manual_seed(seed)
        self.place = torch.randint(floors, (houses,), generator=self.generator)
        self.waiting = torch.zeros(houses, floors)

    @property
    def size(self):
        return 2 * self.floors

    def observe(self):
        return torch.cat([F.one_hot(self.place, self.floors).float(), self.waiting / 5], dim=1)

    def step(self, actions):
        self.place = (self.place + actions - 1).clamp(0, self.floors - 1)
        opened = (actions == 1).float().unsqueeze(1) * F.one_hot(self.place, self.floors)
        served = (opened * self.waiting).sum(dim=1)
        self.waiting = self.waiting * (1 - opened)
        arrivals = torch.rand(self.houses, self.floors, generator=self.generator) < 0.04
        self.waiting = (self.waiting + arrivals).clamp(max=5)
        return self.observe(), served - 0.05 * self.waiting.sum(dim=1)


class RingBuffer:
    def __init__(self, capacity, size):
        self.states = torch.empty(capacity, size)
        self.later = torch.empty(capacity, size)
        self.actions = torch.empty(capacity, dtype=torch.long)
        self.rewards = torch.empty(capacity)
        self.capacity, self.next, self.filled = capacity, 0, 0

    def add(self, states, actions, rewards, later):
        place = (self.next + torch.arange(len(states))) % self.capacity
        self.states[place], self.later[place] = states, later
        self.actions[place], self.rewards[place] = actions, rewards
        self.next = (self.next + len(states)) % self.capacity
        self.filled = min(self.filled + len(states), self.capacity)

    def sample(self, count):
        place = torch.randint(self.filled, (count,))
        return self.states[place], self.actions[place], self.rewards[place], self.later[place]


def make_network(inputs, hidden, actions):
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, actions)
    )


class DoubleDQN:
    def __init__(self, inputs, args):
        self.online = make_network(inputs, args.hidden, 3)
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=args.lr, fused=True)
        self.gamma, self.tau = args.gamma, args.tau

    @torch.no_grad()
    def act(self, states, epsilon):
        greedy = self.online(states).argmax(dim=1)
        random = torch.randint(3, greedy.shape)
        return torch.where(torch.rand(greedy.shape) < epsilon, random, greedy)

    def update(self, states, actions, rewards, later):
        with torch.no_grad():
            chosen = self.online(later).argmax(dim=1, keepdim=True)
            goal = rewards + self.gamma * self.target(later).gather(1, chosen).squeeze(1)
        values = self.online(states).gather(1, actions.unsqueeze(1)).squeeze(1)
        loss = F.smooth_l1_loss(values, goal)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            targets, onlines = list(self.target.parameters()), list(self.online.parameters())
            torch._foreach_lerp_(targets, onlines, self.tau)
        return loss.detach()


def evaluate(agent, floors, seed, steps=40):
    houses = LiftHouses(32, floors, seed)
    states, total = houses.observe(), torch.zeros(())
    for _ in range(steps):
        states, rewards = houses.step(agent.act(states, 0.0))
        total += rewards.mean()
    return total.item()


def train(args):
    torch.manual_seed(args.seed)
    houses = LiftHouses(args.houses, args.floors, args.seed)
    agent = DoubleDQN(houses.size, args)
    buffer = RingBuffer(args.capacity, houses.size)
    states = houses.observe()
    losses = torch.zeros(())
    for step in range(1, args.steps + 1):
        epsilon = max(0.05, 1 - step / (0.5 * args.steps))
        actions = agent.act(states, epsilon)
        later, rewards = houses.step(actions)
        buffer.add(states, actions, rewards, later)
        states = later
        losses += agent.update(*buffer.sample(args.batch_size))
        if step % 100 == 0:
            print(f"step {step}: loss {losses.item() / 100:.4f}, epsilon {epsilon:.2f}")
            losses.zero_()
        if step % 400 == 0:
            print(f"step {step}: return {evaluate(agent, args.floors, 1000):.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--houses", type=int, default=64)
    parser.add_argument("--floors", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--capacity", type=int, default=20_000)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--gamma", type=float, default=0.95)
    parser.add_argument("--tau", type=float, default=0.01)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    train(parser.parse_args())
