"""Gated message passing over grooming networks of lemur troops: which troop splits within the year?"""

from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F


@dataclass
class TrainConfig:
    troops: int = 1024
    batch_troops: int = 48
    width: int = 64
    rounds: int = 4
    lr: float = 2e-3
    weight_decay: float = 1e-5
    epochs: int = 12
    seed: int = 21
    detect_anomaly: bool = True


class Troop:
    """A graph: features of its animals, who grooms whom and how long, and the label."""

    def __init__(self, animals, source, target, minutes, splits):
        self.animals, self.source, self.target, self.minutes, self.splits = animals, source, target, minutes, splits

    @classmethod
    def simulate(cls, generator):
        size = int(torch.randint(8, 22, (), generator=generator))
        factions = (torch.rand(size, generator=generator) < 0.5).long()
        cohesion = torch.rand((), generator=generator)
        chance = torch.where(factions[:, None] == factions[None, :], 0.5, 0.5 * cohesion)
        grooming = torch.rand(size, size, generator=generator) < chance
        source, target = grooming.fill_diagonal_(False).nonzero(as_tuple=True)
        minutes = torch.rand(len(source), 4, generator=generator)
        animals = torch.randn(size, 12, generator=generator)
        animals[:, 0] += 0.5 * factions
        return cls(animals, source, target, minutes, (cohesion < 0.4).float())


def merge(troops):
    """One large graph without edges between the troops."""
    sizes = torch.tensor([len(troop.animals) for troop in troops])
    shift = F.pad(sizes.cumsum(0)[:-1], (1, 0))
    source = torch.cat([troop.source + offset for troop, offset in zip(troops, shift.tolist())])
    target = torch.cat([troop.target + offset for troop, offset in zip(troops, shift.tolist())])
    return {
        "animals": torch.cat([troop.animals for troop in troops]),
        "minutes": torch.cat([troop.minutes for troop in troops]),
        "source": source,
        "target": target,
        "troop": torch.repeat_interleave(torch.arange(len(troops)), sizes),
        "splits": torch.stack([troop.splits for troop in troops]),
    }


class GatedRound(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.send = nn.Linear(width, width)
        self.receive = nn.Linear(width, width)
        self.edge = nn.Linear(width, width)
        self.update = nn.GRUCell(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, nodes, edges, source, target):
        mixed = self.send(nodes)[source] + self.receive(nodes)[target] + self.edge(edges)
        messages = torch.sigmoid(mixed) * nodes[source]
        inbox = torch.zeros_like(nodes).index_add(0, target, messages)
        return self.norm(self.update(inbox, nodes)), edges + F.relu(mixed)


class TroopNet(nn.Module):
    def __init__(self, width, rounds):
        super().__init__()
        self.animals = nn.Sequential(nn.Linear(12, width), nn.ReLU(), nn.Linear(width, width))
        self.minutes = nn.Linear(4, width)
        self.rounds = nn.ModuleList(GatedRound(width) for _ in range(rounds))
        self.readout = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, graph):
        nodes, edges = self.animals(graph["animals"]), self.minutes(graph["minutes"])
        for message_round in self.rounds:
            nodes, edges = message_round(nodes, edges, graph["source"], graph["target"])
        count = len(graph["splits"])
        total = nodes.new_zeros(count, nodes.shape[1]).index_add(0, graph["troop"], nodes)
        peak = nodes.new_zeros(count, nodes.shape[1]).index_reduce(
            0, graph["troop"], nodes.tanh(), "amax", include_self=False
        )
        return self.readout(torch.cat([total / 15, peak], dim=1)).squeeze(1)


def batches(graphs, generator):
    for position in torch.randperm(len(graphs), generator=generator).tolist():
        yield graphs[position]


def train(config):
    torch.manual_seed(config.seed)
    torch.autograd.set_detect_anomaly(config.detect_anomaly)
    generator = torch.Generator().manual_seed(config.seed)
    troops = [Troop.simulate(generator) for _ in range(config.troops)]
    graphs = [merge(troops[at : at + config.batch_troops]) for at in range(0, len(troops), config.batch_troops)]

    model = TroopNet(config.width, config.rounds)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, weight_decay=config.weight_decay, fused=True)
    for epoch in range(config.epochs):
        losses = []
        for graph in batches(graphs, generator):
            optimizer.zero_grad(set_to_none=True)
            loss = F.binary_cross_entropy_with_logits(model(graph), graph["splits"])
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        print(f"epoch {epoch + 1:2d} loss {torch.stack(losses).mean().item():.4f}")


if __name__ == "__main__":
    train(TrainConfig())
