"""Beavers mend a dam where the water leaks: advantage actor-critic on a grid, many dams at once."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical

ACTIONS = 6


class Dams:
    """Dams of `size` by `size` logs. A beaver walks over its dam, gnaws a log or mends the one below it."""

    def __init__(self, count: int, size: int, seed: int):
        self.count, self.size = count, size
        self.generator = torch.Generator().manual_seed(seed)
        self.moves = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0], [0, 0], [0, 0]])
        self.rows = torch.arange(count)
        self.leaks = torch.rand(count, size, size, generator=self.generator)
        self.places = torch.randint(size, (count, 2), generator=self.generator)
        self.logs = torch.full((count,), 3.0)

    def observe(self) -> torch.Tensor:
        beaver = torch.zeros(self.count, self.size, self.size)
        beaver[self.rows, self.places[:, 0], self.places[:, 1]] = 1.0
        carried = (self.logs / 5).view(-1, 1, 1).expand(-1, self.size, self.size)
        return torch.stack([self.leaks, beaver, carried], dim=1)

    def step(self, actions: torch.Tensor) -> torch.Tensor:
        self.places = (self.places + self.moves[actions]).clamp(0, self.size - 1)
        gnaws, mends = actions == 4, (actions == 5) & (self.logs > 0)
        below = self.leaks[self.rows, self.places[:, 0], self.places[:, 1]]
        reward = torch.where(mends, below, torch.zeros_like(below)) - 0.05 * self.leaks.mean((1, 2))
        self.leaks[self.rows, self.places[:, 0], self.places[:, 1]] = torch.where(mends, 0.0, below)
        self.logs = (self.logs + gnaws.float() - mends.float()).clamp(0, 5)
        worn = torch.rand(self.leaks.shape, generator=self.generator) < 0.02
        self.leaks = (self.leaks + 0.3 * worn).clamp(0, 1)
        return reward


class BeaverNet(nn.Module):
    def __init__(self, size: int, width: int, hidden: int):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(width * ((size + 1) // 2) ** 2, hidden),
            nn.ReLU(),
        )
        self.policy = nn.Linear(hidden, ACTIONS)
        self.value = nn.Linear(hidden, 1)

    def forward(self, observation: torch.Tensor) -> tuple[Categorical, torch.Tensor]:
        features = self.trunk(observation)
        return Categorical(logits=self.policy(features)), self.value(features).squeeze(-1)


class Agent:
    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.net = BeaverNet(args.size, args.width, args.hidden)
        self.optimizer = torch.optim.RMSprop(self.net.parameters(), lr=args.lr, alpha=0.99, eps=1e-5)

    @torch.no_grad()
    def collect(self, dams: Dams) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        observations, actions, rewards = [], [], []
        for _ in range(self.args.horizon):
            observation = dams.observe()
            action = self.net(observation)[0].sample()
            observations.append(observation)
            actions.append(action)
            rewards.append(dams.step(action))
        target = self.net(dams.observe())[1]
        returns = []
        for reward in reversed(rewards):
            target = reward + self.args.gamma * target
            returns.append(target)
        return torch.cat(observations), torch.cat(actions), torch.cat(returns[::-1]), torch.stack(rewards).mean()

    def update(self, observations: torch.Tensor, actions: torch.Tensor, returns: torch.Tensor) -> torch.Tensor:
        policy, values = self.net(observations)
        advantages = returns - values.detach()
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-6)
        policy_loss = -(policy.log_prob(actions) * advantages).mean()
        value_loss = F.smooth_l1_loss(values, returns)
        entropy_loss = -policy.entropy().mean()
        self.optimizer.zero_grad()
        policy_loss.backward(retain_graph=True)
        (self.args.value_weight * value_loss).backward(retain_graph=True)
        (self.args.entropy_weight * entropy_loss).backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), self.args.clip)
        self.optimizer.step()
        return torch.stack([policy_loss, value_loss, entropy_loss]).detach()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dams", type=int, default=16)
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--width", type=int, default=24)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--horizon", type=int, default=8)
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--lr", type=float, default=7e-4)
    parser.add_argument("--gamma", type=float, default=0.95)
    parser.add_argument("--value-weight", type=float, default=0.5)
    parser.add_argument("--entropy-weight", type=float, default=0.01)
    parser.add_argument("--clip", type=float, default=0.5)
    parser.add_argument("--report-every", type=int, default=40)
    parser.add_argument("--seed", type=int, default=6)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    dams = Dams(args.dams, args.size, args.seed)
    agent = Agent(args)
    rewards, losses = [], []
    for update in range(1, args.updates + 1):
        observations, actions, returns, reward = agent.collect(dams)
        losses.append(agent.update(observations, actions, returns))
        rewards.append(reward)
        if update % args.report_every == 0:
            policy, value, entropy = torch.stack(losses).mean(0).tolist()
            mean = torch.stack(rewards).mean().item()
            print(f"{update}: reward {mean:.4f}, policy {policy:.4f}, value {value:.4f}, entropy {-entropy:.3f}")
            rewards.clear()
            losses.clear()


if __name__ == "__main__":
    main()
