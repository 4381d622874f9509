"""A forklift learns to fetch pallets in a warehouse: deep Q-learning on many warehouses at once."""

import argparse
import copy

import torch
import torch.nn.functional as F
from torch import nn

MOVES = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0], [0, 0]])


class Warehouses:
    """Square halls with random shelves, all stepped by tensor operations."""

    def __init__(self, count, size, generator):
        self.count, self.size, self.generator = count, size, generator
        self.shelves = torch.rand(count, size, size, generator=generator) < 0.15
        self.rows = torch.arange(count)
        self.time = torch.zeros(count, dtype=torch.long)
        self.truck = self._place()
        self.pallet = self._place()

    def _place(self):
        return torch.randint(0, self.size, (self.count, 2), generator=self.generator)

    def observe(self):
        planes = torch.zeros(self.count, 3, self.size, self.size)
        planes[:, 0] = self.shelves
        planes[self.rows, 1, self.truck[:, 0], self.truck[:, 1]] = 1
        planes[self.rows, 2, self.pallet[:, 0], self.pallet[:, 1]] = 1
        return planes

    def step(self, actions):
        wanted = (self.truck + MOVES[actions]).clamp(0, self.size - 1)
        blocked = self.shelves[self.rows, wanted[:, 0], wanted[:, 1]]
        self.truck = torch.where(blocked[:, None], self.truck, wanted)
        self.time += 1
        fetched = (self.truck == self.pallet).all(dim=1)
        reward = fetched.float() - 0.01 - 0.05 * blocked.float()
        done = fetched | (self.time >= 60)
        self.time[done] = 0
        self.pallet = torch.where(done[:, None], self._place(), self.pallet)
        return reward, done


class ReplayMemory:
    def __init__(self, capacity, size):
        self.states = torch.zeros(capacity, 3, size, size, dtype=torch.bool)
        self.next_states = torch.zeros_like(self.states)
        self.actions = torch.zeros(capacity, dtype=torch.long)
        self.rewards = torch.zeros(capacity)
        self.dones = torch.zeros(capacity)
        self.capacity, self.position, self.filled = capacity, 0, 0

    def push(self, states, actions, rewards, next_states, dones):
        slots = (self.position + torch.arange(len(actions))) % self.capacity
        self.states[slots] = states.bool()
        self.next_states[slots] = next_states.bool()
        self.actions[slots], self.rewards[slots], self.dones[slots] = actions, rewards, dones.float()
        self.position = (self.position + len(actions)) % self.capacity
        self.filled = min(self.capacity, self.filled + len(actions))

    def sample(self, batch_size):
        slots = torch.randint(0, self.filled, (batch_size,))
        return (
            self.states[slots].float(),
            self.actions[slots],
            self.rewards[slots],
            self.next_states[slots].float(),
            self.dones[slots],
        )


class QNetwork(nn.Module):
    def __init__(self, size, width=24):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Flatten(),
        )
        self.value = nn.Sequential(nn.Linear(2 * width * (size // 2) ** 2, 128), nn.ReLU(), nn.Linear(128, len(MOVES)))

    def forward(self, states):
        return self.value(self.features(states))


class Agent:
    def __init__(self, args):
        self.gamma = args.gamma
        self.online = QNetwork(args.size)
        self.target = copy.deepcopy(self.online)
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=args.lr, fused=True)

    @torch.no_grad()
    def act(self, states, epsilon):
        greedy = self.online(states).argmax(dim=1)
        random = torch.randint(0, len(MOVES), greedy.shape)
        return torch.where(torch.rand(greedy.shape) < epsilon, random, greedy)

    def learn(self, batch):
        states, actions, rewards, next_states, dones = batch
        q = self.online(states).gather(1, actions[:, None]).squeeze(1)
        with torch.no_grad():
            next_q = self.target(next_states).max(dim=1).values
        loss = F.smooth_l1_loss(q, rewards + self.gamma * (1 - dones) * next_q)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.online.parameters(), 10.0)
        self.optimizer.step()
        return loss.detach()

    def synchronise(self):
        self.target.load_state_dict(self.online.state_dict())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--halls", type=int, default=16)
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--gamma", type=float, default=0.97)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--sync-every", type=int, default=50)
    args = parser.parse_args()
    torch.manual_seed(6)
    halls = Warehouses(args.halls, args.size, torch.Generator().manual_seed(6))
    memory = ReplayMemory(8000, args.size)
    agent = Agent(args)
    states = halls.observe()
    earned = torch.zeros(())
    for step in range(args.steps):
        actions = agent.act(states, epsilon=max(0.05, 1 - step / 300))
        rewards, dones = halls.step(actions)
        next_states = halls.observe()
        memory.push(states, actions, rewards, next_states, dones)
        states = next_states
        earned += rewards.mean()
        loss = agent.learn(memory.sample(args.batch_size))
        if (step + 1) % args.sync_every == 0:
            agent.synchronise()
        if (step + 1) % 100 == 0:
            print(f"step {step + 1}: loss {loss.item():.4f}, mean return {earned.item():.3f}")


if __name__ == "__main__":
    main()
