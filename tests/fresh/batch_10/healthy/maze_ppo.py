"""Ways out of mazes with PPO: a thousand walkers move at once as tensors, and large minibatches are learnt from."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical

WALKERS, STEPS, SIDE = 256, 32, 9


class Mazes:
    moves = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])

    def __init__(self):
        self.walls = torch.rand(WALKERS, SIDE, SIDE) < 0.2
        self.rows = torch.arange(WALKERS)
        self.place, self.goal = torch.randint(SIDE, (2, WALKERS, 2))

    def observe(self):
        mark = torch.zeros(WALKERS, 3, SIDE, SIDE)
        mark[:, 0] = self.walls
        mark[self.rows, 1, self.place[:, 0], self.place[:, 1]] = 1
        mark[self.rows, 2, self.goal[:, 0], self.goal[:, 1]] = 1
        return mark

    def step(self, action):
        wanted = (self.place + self.moves[action]).clamp(0, SIDE - 1)
        blocked = self.walls[self.rows, wanted[:, 0], wanted[:, 1]]
        self.place = torch.where(blocked[:, None], self.place, wanted)
        done = (self.place == self.goal).all(1)
        self.goal = torch.where(done[:, None], torch.randint(SIDE, (WALKERS, 2)), self.goal)
        return done.float() - 0.01, done.float()


class Policy(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, 2), nn.ReLU(), nn.Flatten()
        )
        self.head = nn.Sequential(nn.Linear(width * 16, 64), nn.ReLU(), nn.Linear(64, 5))

    def forward(self, x):
        out = self.head(self.body(x))
        return Categorical(logits=out[:, :4]), out[:, 4]


@torch.no_grad()
def rollout(mazes, policy):
    seen, acts, logs, values, rewards, dones = [], [], [], [], [], []
    for _ in range(STEPS):
        x = mazes.observe()
        choice, value = policy(x)
        action = choice.sample()
        reward, done = mazes.step(action)
        for part, item in zip(
            (seen, acts, logs, values, rewards, dones), (x, action, choice.log_prob(action), value, reward, done)
        ):
            part.append(item)
    following, advantage, advantages = policy(mazes.observe())[1], torch.zeros(WALKERS), []
    for value, reward, done in zip(values[::-1], rewards[::-1], dones[::-1]):
        advantage = reward + 0.97 * (1 - done) * following - value + 0.97 * 0.95 * (1 - done) * advantage
        advantages.append(advantage)
        following = value
    advantages = torch.cat(advantages[::-1])
    return (
        torch.cat(seen),
        torch.cat(acts),
        torch.cat(logs),
        advantages,
        advantages + torch.cat(values),
        torch.cat(rewards),
    )


def main(rounds=5, epochs=3, batch=1024):
    torch.manual_seed(0)
    mazes, policy = Mazes(), Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    for number in range(rounds):
        seen, acts, logs, advantages, returns, rewards = rollout(mazes, policy)
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-6)
        for _ in range(epochs):
            for index in torch.randperm(len(seen)).split(batch):
                choice, value = policy(seen[index])
                ratio = (choice.log_prob(acts[index]) - logs[index]).exp()
                gain = torch.minimum(ratio * advantages[index], ratio.clamp(0.8, 1.2) * advantages[index]).mean()
                loss = F.mse_loss(value, returns[index]) / 2 - gain - 0.01 * choice.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
                optimizer.step()
        print(f"round {number}: mean reward {rewards.mean().item():.4f}")


if __name__ == "__main__":
    main()
