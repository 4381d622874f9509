"""Next item of a shopping session in a haberdashery: a recurrent recommender with losses inside the batch."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class SessionConfig:
    items: int = 3_000
    sessions: int = 5_000
    clicks: int = 16
    width: int = 96
    batch: int = 64
    steps: int = 400
    lr: float = 2e-3
    report: int = 100
    seed: int = 8


def make_sessions(cfg: SessionConfig) -> Tensor:
    """Walks over a catalogue in which every item has a few neighbours."""
    gen = torch.Generator().manual_seed(cfg.seed)
    neighbours = torch.randint(cfg.items, (cfg.items, 6), generator=gen)
    walk = [torch.randint(cfg.items, (cfg.sessions,), generator=gen)]
    for _ in range(cfg.clicks):
        turn = torch.randint(6, (cfg.sessions,), generator=gen)
        walk.append(neighbours[walk[-1], turn])
    return torch.stack(walk, dim=1)


class ItemEncoder(nn.Module):
    def __init__(self, items: int, width: int) -> None:
        super().__init__()
        self.items = items
        self.table = nn.Parameter(torch.randn(items, width) * 0.05)

    def forward(self, items: Tensor) -> Tensor:
        return F.one_hot(items, self.items).float() @ self.table


class SessionModel(nn.Module):
    def __init__(self, cfg: SessionConfig) -> None:
        super().__init__()
        self.encode = ItemEncoder(cfg.items, cfg.width)
        self.recur = nn.GRU(cfg.width, cfg.width, batch_first=True)
        self.output = nn.Embedding(cfg.items, cfg.width)
        nn.init.normal_(self.output.weight, std=0.05)
        self.drop = nn.Dropout(0.1)

    def forward(self, clicks: Tensor) -> Tensor:
        states, _ = self.recur(self.drop(self.encode(clicks)))
        return states

    def loss(self, clicks: Tensor) -> Tensor:
        states = self(clicks[:, :-1])
        return in_batch_softmax(states, self.output(clicks[:, 1:]), clicks[:, 1:])


def in_batch_softmax(states: Tensor, targets: Tensor, ids: Tensor) -> Tensor:
    """Every position competes with the targets of the other sessions at that position."""
    scores = torch.einsum("btd,ctd->tbc", states, targets)
    same = ids.t().unsqueeze(2) == ids.t().unsqueeze(1)
    diagonal = torch.eye(len(ids), dtype=torch.bool)
    scores = scores.masked_fill(same & ~diagonal, float("-inf"))
    labels = torch.arange(len(ids)).expand(scores.shape[0], -1)
    return F.cross_entropy(scores.flatten(0, 1), labels.flatten())


@torch.no_grad()
def recall(model: SessionModel, sessions: Tensor, k: int = 20) -> float:
    model.eval()
    last = model(sessions[:, :-1])[:, -1]
    best = (last @ model.output.weight.t()).topk(k, dim=1).indices
    model.train()
    return (best == sessions[:, -1:]).any(dim=1).float().mean().item()


class Trainer:
    def __init__(self, cfg: SessionConfig) -> None:
        self.cfg = cfg
        sessions = make_sessions(cfg)
        self.held_out, self.train_set = sessions[:256], sessions[256:]
        self.model = SessionModel(cfg)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=cfg.lr, fused=True)

    def step(self) -> Tensor:
        chosen = torch.randint(len(self.train_set), (self.cfg.batch,))
        loss = self.model.loss(self.train_set[chosen])
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def run(self) -> None:
        total = torch.zeros(())
        for number in range(1, self.cfg.steps + 1):
            total += self.step()
            if number % self.cfg.report == 0:
                print(f"{number:4d} loss {total.item() / self.cfg.report:.3f}", end=" ")
                print(f"recall@20 {recall(self.model, self.held_out):.3f}")
                total.zero_()


if __name__ == "__main__":
    torch.manual_seed(8)
    Trainer(SessionConfig()).run()
