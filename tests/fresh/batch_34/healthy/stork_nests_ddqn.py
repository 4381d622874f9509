"""Storks choose a chimney to land on in the wind: double Q-learning over many fields at once."""

import argparse
import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Chimneys:
    """A stork glides over a row of chimneys. It may steer left or right, sink, rise or land."""

    actions, observation = 5, 12

    def __init__(self, count: int, seed: int):
        self.count = count
        self.generator = torch.Generator().manual_seed(seed)
        self.state = torch.empty(count, self.observation)
        self.effects = torch.tensor([[-0.1, 0.0], [0.1, 0.0], [0.0, -0.1], [0.0, 0.1], [0.0, -0.05]])
        self.reset(torch.ones(count, dtype=torch.bool))

    def reset(self, over: Tensor) -> None:
        fresh = 2 * torch.rand(self.count, self.observation, generator=self.generator) - 1
        fresh[:, 1] = fresh[:, 1].abs()
        self.state = torch.where(over.unsqueeze(1), fresh, self.state)

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        gust = 0.03 * torch.randn(self.count, generator=self.generator)
        place = self.state[:, :2] + self.effects[actions]
        place[:, 0] += 0.05 * self.state[:, 2] + gust
        nests = self.state[:, 3:]
        distance = (place[:, :1] - nests).abs().amin(1) + place[:, 1].abs()
        lands = actions == 4
        reward = torch.where(lands, 1.0 - 2.0 * distance, torch.full_like(distance, -0.02))
        lost = (place[:, 0].abs() > 1.5) | (place[:, 1] > 1.5) | (place[:, 1] < -0.2)
        reward = reward - lost.float()
        over = lands | lost
        self.state = torch.cat([place, self.state[:, 2:]], dim=1)
        following = self.state
        self.reset(over)
        return following, reward, over


class Replay:
    """Rows in tensors that are set aside once and written in a ring."""

    def __init__(self, size: int, observation: int):
        self.size, self.filled, self.next = size, 0, 0
        self.states = torch.empty(size, observation)
        self.following = torch.empty(size, observation)
        self.actions = torch.empty(size, dtype=torch.long)
        self.rewards = torch.empty(size)
        self.running = torch.empty(size)

    def add(self, states: Tensor, actions: Tensor, rewards: Tensor, following: Tensor, over: Tensor) -> None:
        rows = slice(self.next, self.next + len(states))
        self.states[rows], self.following[rows] = states, following
        self.actions[rows], self.rewards[rows], self.running[rows] = actions, rewards, (~over).float()
        self.next = (self.next + len(states)) % self.size
        self.filled = min(self.filled + len(states), self.size)

    def sample(self, count: int) -> tuple[Tensor, ...]:
        rows = torch.randint(self.filled, (count,))
        return self.states[rows], self.actions[rows], self.rewards[rows], self.following[rows], self.running[rows]


def q_network(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(Chimneys.observation, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, Chimneys.actions),
    )


def update(online: nn.Module, target: nn.Module, optimizer: torch.optim.Optimizer, batch, gamma: float) -> Tensor:
    states, actions, rewards, following, running = batch
    with torch.no_grad():
        best = online(following).argmax(1, keepdim=True)
        wanted = rewards + gamma * running * target(following).gather(1, best).squeeze(1)
    loss = F.smooth_l1_loss(online(states).gather(1, actions.unsqueeze(1)).squeeze(1), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fields", type=int, default=64)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--replay", type=int, default=32_768)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--updates", type=int, default=800)
    parser.add_argument("--copy-every", type=int, default=100)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--gamma", type=float, default=0.97)
    parser.add_argument("--report-every", type=int, default=100)
    parser.add_argument("--seed", type=int, default=33)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    fields = Chimneys(args.fields, args.seed)
    replay = Replay(args.replay, Chimneys.observation)
    online = q_network(args.width)
    target = copy.deepcopy(online).requires_grad_(False)
    optimizer = torch.optim.Adam(online.parameters(), lr=args.lr, fused=True)
    losses, rewards = [], []
    for number in range(1, args.updates + 1):
        states = fields.state
        with torch.no_grad():
            greedy = online(states).argmax(1)
        wild = torch.rand(args.fields) < max(0.05, 1 - 2 * number / args.updates)
        actions = torch.where(wild, torch.randint(Chimneys.actions, (args.fields,)), greedy)
        following, reward, over = fields.step(actions)
        replay.add(states, actions, reward, following, over)
        losses.append(update(online, target, optimizer, replay.sample(args.batch_size), args.gamma))
        rewards.append(reward.mean())
        if number % args.copy_every == 0:
            target.load_state_dict(online.state_dict())
        if number % args.report_every == 0:
            loss, mean = torch.stack(losses).mean().item(), torch.stack(rewards).mean().item()
            print(f"{number}: loss {loss:.4f}, reward {mean:.3f}")
            losses, rewards = [], []


if __name__ == "__main__":
    main()
