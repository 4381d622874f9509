"""A generative flow network that builds sequences letter by letter, trained with trajectory balance."""

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.distributions import Categorical


@dataclass
class Config:
    letters: int = 4
    length: int = 24
    batch: int = 96
    embed: int = 32
    hidden: int = 128
    temperature: float = 2.0
    epsilon: float = 0.05
    lr: float = 1e-3
    lr_logz: float = 5e-2
    steps: int = 110
    seed: int = 525


class MotifReward:
    """Binding strength of a strand: how much of each motif it holds, and an even share of letters."""

    def __init__(self, config):
        generator = torch.Generator().manual_seed(config.seed)
        self.motifs = torch.randint(0, config.letters, (3, 6), generator=generator)
        self.temperature = config.temperature

    def log_reward(self, strands):
        windows = strands.unfold(1, self.motifs.shape[1], 1)
        agreement = (windows[:, :, None] == self.motifs).float().mean(dim=-1)
        balance = (strands == strands.mode(dim=1, keepdim=True).values).float().mean(dim=1)
        return self.temperature * (agreement.amax(dim=1).square().sum(dim=1) - balance)


class RecurrentPolicy(nn.Module):
    """Logits of the next letter for every position. `state` goes on where an earlier call ended."""

    def __init__(self, config):
        super().__init__()
        self.embedding = nn.Embedding(config.letters + 1, config.embed)
        self.gru = nn.GRU(config.embed, config.hidden, batch_first=True)
        self.head = nn.Sequential(nn.Linear(config.hidden, config.hidden), nn.ReLU())
        self.out = nn.Linear(config.hidden, config.letters)

    def forward(self, tokens, state=None):
        outputs, state = self.gru(self.embedding(tokens), state)
        return self.out(self.head(outputs)), state


class Sampler:
    def __init__(self, policy, config):
        self.policy, self.config = policy, config

    @torch.no_grad()
    def sample(self):
        """Strands, each with the token of the start before its letters."""
        config = self.config
        tokens = torch.full((config.batch, 1), config.letters)
        state = None
        for _ in range(config.length):
            logits, state = self.policy(tokens[:, -1:], state)
            probs = (1 - config.epsilon) * logits[:, -1].softmax(dim=-1) + config.epsilon / config.letters
            tokens = torch.cat((tokens, torch.multinomial(probs, 1)), dim=1)
        return tokens


class TrajectoryBalance(nn.Module):
    """Strands are built in one way only, so the backward policy has nothing to choose."""

    def __init__(self, policy, config):
        super().__init__()
        self.policy = policy
        self.log_z = nn.Parameter(torch.tensor(config.length * math.log(config.letters)))

    def forward(self, tokens, log_reward):
        logits, _ = self.policy(tokens[:, :-1])
        log_forward = Categorical(logits=logits).log_prob(tokens[:, 1:]).sum(dim=1)
        return (self.log_z + log_forward - log_reward).square().mean()


def main():
    config = Config()
    torch.manual_seed(config.seed)
    policy, reward = RecurrentPolicy(config), MotifReward(config)
    sampler, criterion = Sampler(policy, config), TrajectoryBalance(policy, config)
    groups = [
        {"params": policy.parameters(), "lr": config.lr},
        {"params": [criterion.log_z], "lr": config.lr_logz},
    ]
    optimizer = torch.optim.Adam(groups, fused=True)
    for step in range(config.steps):
        tokens = sampler.sample()
        log_reward = reward.log_reward(tokens[:, 1:])
        loss = criterion(tokens, log_reward)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step}: loss {loss.item():.3f} log Z {criterion.log_z.item():.2f} {log_reward.mean():.3f}")


if __name__ == "__main__":
    main()
