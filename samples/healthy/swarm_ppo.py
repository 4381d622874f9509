"""Proximal policy optimisation of a swarm of gliders: all of them move at once, as tensors."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    gliders: int = 256
    horizon: int = 12
    minibatch: int = 1024
    passes: int = 2
    rounds: int = 30
    discount: float = 0.97
    smoothing: float = 0.95
    clip: float = 0.2
    largest_kl: float = 0.05
    lr: float = 1e-3


class Swarm:
    """Places and speeds in the plane; a move is a push in one of five directions (one of them is none)."""

    pushes = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, -1.0], [-1.0, 0.0]])

    def __init__(self, count, device):
        self.place, self.speed = torch.randn(count, 2, device=device), torch.zeros(count, 2, device=device)
        self.pushes = self.pushes.to(device)

    def observe(self):
        return torch.cat([self.place, self.speed], 1)

    def step(self, move):
        """What came of it: rewards, and which gliders were lost and start again."""
        self.speed = 0.9 * self.speed + 0.1 * self.pushes[move]
        self.place = self.place + self.speed
        lost = self.place.abs().amax(1) > 4
        reward = -self.place.square().sum(1) * 0.1 - lost.float()
        self.place = torch.where(lost[:, None], torch.randn_like(self.place), self.place)
        self.speed = self.speed * ~lost[:, None]
        return reward, lost


class Agent(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.policy, self.value = nn.Linear(width, 5), nn.Linear(width, 1)

    def forward(self, seen):
        with torch.autocast(seen.device.type, dtype=torch.bfloat16):
            hidden = self.body(seen)
            scores, value = self.policy(hidden), self.value(hidden)
        return scores.float().log_softmax(1), value.float().squeeze(1)


@torch.no_grad()
def collect(agent, swarm, cfg):
    """One stretch of the swarm's life, with the advantage of each move: tensors of (horizon * gliders, …)."""
    seen, moves, chances, values, rewards, lost = [], [], [], [], [], []
    for _ in range(cfg.horizon):  # what is seen next depends on the move: one call of the policy for each step
        seen.append(swarm.observe())
        chance, value = agent(seen[-1])
        moves.append(torch.multinomial(chance.exp(), 1).squeeze(1))
        chances.append(chance.gather(1, moves[-1][:, None]).squeeze(1))
        values.append(value)
        reward, gone = swarm.step(moves[-1])
        rewards.append(reward)
        lost.append(gone)
    following, advantage, advantages = agent(swarm.observe())[1], 0.0, []
    for reward, gone, value in zip(reversed(rewards), reversed(lost), reversed(values)):
        error = reward + cfg.discount * following * ~gone - value
        advantage = error + cfg.discount * cfg.smoothing * advantage * ~gone
        advantages.append(advantage)
        following = value
    advantages = torch.cat(advantages[::-1])
    return torch.cat(seen), torch.cat(moves), torch.cat(chances), advantages, advantages + torch.cat(values)


def main(cfg):
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    swarm, agent = Swarm(cfg.gliders, device), Agent().to(device)
    optimizer = torch.optim.Adam(agent.parameters(), lr=cfg.lr, fused=True)
    for number in range(cfg.rounds):
        memory = collect(agent, swarm, cfg)
        for _ in range(cfg.passes):
            kls = []
            for rows in torch.randperm(len(memory[0]), device=device).split(cfg.minibatch):
                seen, move, before, advantage, wanted = (column[rows] for column in memory)
                chance, value = agent(seen)
                now = chance.gather(1, move[:, None]).squeeze(1)
                ratio = (now - before).exp()
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
                gain = torch.minimum(ratio * advantage, ratio.clamp(1 - cfg.clip, 1 + cfg.clip) * advantage).mean()
                entropy = -(chance.exp() * chance).sum(1).mean()
                loss = F.mse_loss(value, wanted) - gain - 0.01 * entropy
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
                kls.append((before - now.detach()).mean())
            if torch.stack(kls).mean().item() > cfg.largest_kl:
                break
        if number % 10 == 9:
            print(f"round {number + 1}: return {memory[4].mean().item():.3f}, entropy {entropy.item():.3f}")


if __name__ == "__main__":
    main(Config())
