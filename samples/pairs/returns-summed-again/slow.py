"""A decision transformer on recorded walks: which move leads to the return that is asked for?"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    states: int = 6
    moves: int = 4
    context: int = 12
    width: int = 48
    heads: int = 2
    layers: int = 2
    batch_size: int = 24
    iterations: int = 250
    discount: float = 1.0


def discount_cumsum(rewards, discount):
    """What is still to come at each step of a walk."""
    total = np.zeros_like(rewards)
    total[-1] = rewards[-1]
    for t in reversed(range(len(rewards) - 1)):
        total[t] = rewards[t] + discount * total[t + 1]
    return total


class Walks:
    """Recorded walks, and random pieces of them for the training."""

    def __init__(self, cfg, count=400, seed=0):
        self.cfg, self.rng = cfg, np.random.default_rng(seed)
        self.walks = [self.walk(int(self.rng.integers(100, 300))) for _ in range(count)]
        lengths = np.array([len(walk["rewards"]) for walk in self.walks])
        self.chance = lengths / lengths.sum()

    def walk(self, length):
        moves = self.rng.integers(0, self.cfg.moves, length).repeat(5)[:length]
        direction = self.rng.standard_normal((self.cfg.moves, self.cfg.states))
        states = 0.1 * direction[moves].cumsum(0)
        rewards = -np.abs(states).mean(1)
        return {"states": states.astype(np.float32), "moves": moves, "rewards": rewards.astype(np.float32)}

    def batch(self):
        """Returns to go, states and moves of random stretches: (batch, context, …) each."""
        togo, states, moves = [], [], []
        for number in self.rng.choice(len(self.walks), self.cfg.batch_size, p=self.chance):
            walk = self.walks[number]
            start = int(self.rng.integers(0, len(walk["rewards"]) - self.cfg.context))
            piece = slice(start, start + self.cfg.context)
            togo.append(discount_cumsum(walk["rewards"], self.cfg.discount)[piece])
            states.append(walk["states"][piece])
            moves.append(walk["moves"][piece])
        return [torch.from_numpy(np.stack(column)) for column in (togo, states, moves)]


class DecisionTransformer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.togo, self.state = nn.Linear(1, cfg.width), nn.Linear(cfg.states, cfg.width)
        self.move = nn.Embedding(cfg.moves + 1, cfg.width)
        self.place = nn.Parameter(0.02 * torch.randn(cfg.context, cfg.width))
        layer = nn.TransformerEncoderLayer(cfg.width, cfg.heads, 4 * cfg.width, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, cfg.layers)
        self.out = nn.Linear(cfg.width, cfg.moves)

    def forward(self, togo, states, before):
        x = self.togo(togo[..., None] / 50) + self.state(states) + self.move(before) + self.place
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        return self.out(self.body(x, mask=mask, is_causal=True))


def main():
    cfg = Config()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    walks, model = Walks(cfg), DecisionTransformer(cfg).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for step in range(1, cfg.iterations + 1):
        togo, states, moves = (column.to(device) for column in walks.batch())
        before = F.pad(moves[:, :-1] + 1, (1, 0))
        loss = F.cross_entropy(model(togo, states, before).flatten(0, 1), moves.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"iteration {step}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
