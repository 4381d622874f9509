"""Double DQN that restocks a kiosk: many kiosks are simulated at once, in tensors."""

import argparse
import copy

import torch
from torch import nn
from torch.nn import functional as F


class KioskFleet:
    """Stock of some goods in each kiosk; an action orders one good, or none."""

    def __init__(self, kiosks, goods, capacity, generator):
        self.kiosks, self.goods, self.capacity = kiosks, goods, capacity
        self.generator = generator
        self.demand = 0.5 + 2.5 * torch.rand(kiosks, goods, generator=generator)
        self.stock = torch.full((kiosks, goods), capacity / 2)
        self.hour = torch.zeros(kiosks)

    @property
    def state_size(self):
        return 2 * self.goods + 2

    def observe(self):
        angle = self.hour[:, None] * (2 * torch.pi / 24)
        return torch.cat([self.stock / self.capacity, self.demand / 3, angle.sin(), angle.cos()], dim=1)

    def step(self, actions):
        ordered = F.one_hot(actions, self.goods + 1)[:, : self.goods]
        self.stock = (self.stock + 8.0 * ordered).clamp_(max=self.capacity)
        rush = 1 + 0.5 * torch.sin(self.hour[:, None] * (2 * torch.pi / 24))
        wanted = torch.poisson(self.demand * rush, generator=self.generator)
        sold = torch.minimum(wanted, self.stock)
        self.stock = self.stock - sold
        self.hour = (self.hour + 1) % 24
        reward = sold.sum(1) - 0.5 * (wanted - sold).sum(1) - 0.02 * self.stock.sum(1) - 0.3 * (actions < self.goods)
        return self.observe(), reward


class RingBuffer:
    def __init__(self, capacity, state_size):
        self.states = torch.empty(capacity, state_size)
        self.next_states = torch.empty(capacity, state_size)
        self.actions = torch.empty(capacity, dtype=torch.long)
        self.rewards = torch.empty(capacity)
        self.capacity, self.start, self.size = capacity, 0, 0

    def add(self, states, actions, rewards, next_states):
        end = self.start + len(actions)
        part = slice(self.start, end)
        self.states[part], self.actions[part] = states, actions
        self.rewards[part], self.next_states[part] = rewards, next_states
        self.start = end % self.capacity
        self.size = max(self.size, end)

    def sample(self, amount, generator):
        chosen = torch.randint(self.size, (amount,), generator=generator)
        return self.states[chosen], self.actions[chosen], self.rewards[chosen], self.next_states[chosen]


class DuelingNet(nn.Module):
    def __init__(self, state_size, actions, hidden=256):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(state_size, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.heads = nn.Linear(hidden, 1 + actions)

    def forward(self, states):
        value, advantage = self.heads(self.body(states)).split([1, self.heads.out_features - 1], dim=1)
        return value + advantage - advantage.mean(dim=1, keepdim=True)


def td_loss(online, target, batch, discount):
    states, actions, rewards, next_states = batch
    with torch.no_grad():
        best = online(next_states).argmax(dim=1, keepdim=True)
        wanted = 0.1 * rewards + discount * target(next_states).gather(1, best).squeeze(1)
    return F.smooth_l1_loss(online(states).gather(1, actions[:, None]).squeeze(1), wanted)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kiosks", type=int, default=128)
    parser.add_argument("--goods", type=int, default=20)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--capacity", type=int, default=128 * 400)
    parser.add_argument("--discount", type=float, default=0.97)
    parser.add_argument("--tau", type=float, default=0.01)
    parser.add_argument("--lr", type=float, default=5e-4)
    args = parser.parse_args()

    torch.manual_seed(47)
    generator = torch.Generator().manual_seed(47)
    fleet = KioskFleet(args.kiosks, args.goods, 40.0, generator)
    buffer = RingBuffer(args.capacity, fleet.state_size)
    online = DuelingNet(fleet.state_size, args.goods + 1)
    target = copy.deepcopy(online).requires_grad_(False)
    online_weights, target_weights = list(online.parameters()), list(target.parameters())
    optimizer = torch.optim.Adam(online_weights, lr=args.lr, fused=True)

    states = fleet.observe()
    earned = torch.zeros(())
    for step in range(args.steps + 20):
        epsilon = max(0.05, 1 - step / 250)
        with torch.inference_mode():
            greedy = online(states).argmax(dim=1)
        random = torch.randint(args.goods + 1, greedy.shape, generator=generator)
        actions = torch.where(torch.rand(greedy.shape, generator=generator) < epsilon, random, greedy)
        next_states, rewards = fleet.step(actions)
        buffer.add(states, actions, rewards, next_states)
        states = next_states
        earned += rewards.mean()
        if step < 20:
            continue
        loss = td_loss(online, target, buffer.sample(args.batch_size, generator), args.discount)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(target_weights, online_weights, args.tau)
        if step % 100 == 19:
            print(f"step {step + 1}: reward per hour {earned.item() / 100:.2f}, loss {loss.item():.4f}")
            earned.zero_()


if __name__ == "__main__":
    main()
