"""Dueling double DQN that parks cars: many cars step at once, the memory is a block of tensors."""

import argparse
import copy
import math
import tempfile
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

ACTIONS = torch.tensor([[a, s] for a in (-1.0, 0.0, 1.0) for s in (-1.0, 0.0, 1.0)])


class ParkingLots:
    """Cars with position, heading and speed; the goal is to stand still in the origin, facing east."""

    def __init__(self, cars, horizon=80):
        self.cars, self.horizon, self.features = cars, horizon, 6
        self.state = torch.empty(cars, 4)
        self.age = torch.zeros(cars, dtype=torch.long)
        self.restart(torch.ones(cars, dtype=torch.bool))
        self.age.random_(0, horizon)

    def restart(self, which):
        fresh = torch.rand(self.cars, 4) * 2 - 1
        fresh[:, 2] *= math.pi
        fresh[:, 3] = 0
        self.state = torch.where(which[:, None], fresh, self.state)
        self.age[which] = 0

    def observe(self):
        x, y, heading, speed = self.state.unbind(1)
        return torch.stack([x, y, heading.cos(), heading.sin(), speed, self.age / self.horizon], dim=1)

    def step(self, action):
        push, steer = ACTIONS[action].unbind(1)
        x, y, heading, speed = self.state.unbind(1)
        speed = (0.95 * speed + 0.05 * push).clamp(-0.5, 0.5)
        heading = heading + 0.8 * speed * steer
        x, y = x + 0.2 * speed * heading.cos(), y + 0.2 * speed * heading.sin()
        self.state = torch.stack([x, y, heading, speed], dim=1)
        self.age += 1
        distance = torch.hypot(x, y)
        parked = (distance < 0.1) & (speed.abs() < 0.05)
        reward = -0.1 * distance - 0.02 * (1 - heading.cos()) + parked.float()
        seen = self.observe()
        over = parked | (self.age >= self.horizon) | (distance > 2.5)
        self.restart(over)
        return reward, seen, parked, self.observe()


class Memory:
    def __init__(self, capacity, features):
        self.capacity, self.size, self.at = capacity, 0, 0
        self.state, self.next_state = torch.empty(capacity, features), torch.empty(capacity, features)
        self.action = torch.empty(capacity, dtype=torch.long)
        self.reward, self.final = torch.empty(capacity), torch.empty(capacity)

    def add(self, state, action, reward, next_state, final):
        index = (self.at + torch.arange(len(state))) % self.capacity
        self.state[index], self.next_state[index] = state, next_state
        self.action[index], self.reward[index], self.final[index] = action, reward, final.float()
        self.at = (self.at + len(state)) % self.capacity
        self.size = min(self.size + len(state), self.capacity)

    def sample(self, count):
        index = torch.randint(self.size, (count,))
        return self.state[index], self.action[index], self.reward[index], self.next_state[index], self.final[index]


class DuelingNet(nn.Module):
    def __init__(self, features, actions, hidden=320):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.heads = nn.Linear(hidden, actions + 1)

    def forward(self, x):
        both = self.heads(self.body(x))
        value, advantage = both[:, :1], both[:, 1:]
        return value + advantage - advantage.mean(1, keepdim=True)


def update(online, target, optimizer, batch, gamma):
    state, action, reward, next_state, final = batch
    with torch.no_grad():
        best = online(next_state).argmax(1, keepdim=True)
        wanted = reward + gamma * (1 - final) * target(next_state).gather(1, best).squeeze(1)
    value = online(state).gather(1, action.unsqueeze(1)).squeeze(1)
    loss = F.smooth_l1_loss(value, wanted)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(online.parameters(), 10.0)
    optimizer.step()
    return loss.detach()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cars", type=int, default=64)
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--warmup", type=int, default=30)
    parser.add_argument("--target-every", type=int, default=100)
    parser.add_argument("--gamma", type=float, default=0.97)
    args = parser.parse_args()
    torch.manual_seed(0)
    lots = ParkingLots(args.cars)
    memory = Memory(50_000, lots.features)
    online = DuelingNet(lots.features, len(ACTIONS))
    target = copy.deepcopy(online).requires_grad_(False)
    optimizer = torch.optim.Adam(online.parameters(), lr=5e-4)
    state, losses, parked_total = lots.observe(), [], torch.zeros(())
    with tempfile.TemporaryDirectory() as folder:
        for step in range(1, args.steps + 1):
            epsilon = max(0.05, 1 - step / (0.6 * args.steps))
            with torch.no_grad():
                greedy = online(state).argmax(1)
            random = torch.randint(len(ACTIONS), (args.cars,))
            action = torch.where(torch.rand(args.cars) < epsilon, random, greedy)
            reward, next_state, parked, following = lots.step(action)
            memory.add(state, action, reward, next_state, parked)
            state = following
            parked_total += parked.sum()
            if step < args.warmup:
                continue
            losses.append(update(online, target, optimizer, memory.sample(args.batch_size), args.gamma))
            if step % args.target_every == 0:
                target.load_state_dict(online.state_dict())
                mean = torch.stack(losses).mean().item()
                print(f"step {step} loss {mean:.4f} parked {int(parked_total)} epsilon {epsilon:.2f}")
                losses, parked_total = [], torch.zeros(())
        torch.save(online.state_dict(), Path(folder) / "parking.pt")


if __name__ == "__main__":
    main()
