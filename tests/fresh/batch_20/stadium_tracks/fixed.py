"""Links the people that several cameras of a stadium see: a message passing network that classifies edges.

A node is a detection in one camera, an edge joins detections of two cameras and is active if both are one person.
"""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class Scene:
    """One moment: detections of `people` persons in `cameras` cameras, with appearance and ground position."""

    def __init__(self, people, cameras, generator):
        look = torch.randn(people, 32, generator=generator)
        place = torch.rand(people, 2, generator=generator) * 20
        person, camera = torch.meshgrid(torch.arange(people), torch.arange(cameras), indexing="ij")
        seen = torch.rand(people, cameras, generator=generator) < 0.8
        person, camera = person[seen], camera[seen]
        n = len(person)
        self.look = look[person] + 0.8 * torch.randn(n, 32, generator=generator)
        self.place = place[person] + 1.5 * torch.randn(n, 2, generator=generator)
        self.src, self.dst = (camera[:, None] != camera[None]).nonzero(as_tuple=True)
        self.label = (person[self.src] == person[self.dst]).float()

    def edge_features(self):
        gap = self.place[self.src] - self.place[self.dst]
        alike = F.cosine_similarity(self.look[self.src], self.look[self.dst])
        return torch.stack([gap.norm(dim=1), gap.abs().sum(1), 1 - alike, alike], 1)


def mlp(*sizes):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers)


class MPN(nn.Module):
    """Updates edges from both their nodes, then each node from all the edges that arrive at it."""

    def __init__(self, node_dim, edge_dim):
        super().__init__()
        self.edge_update = mlp(2 * node_dim + edge_dim, 40, edge_dim)
        self.message = mlp(node_dim + edge_dim, 48, node_dim)

    def forward(self, x, e, src, dst):
        e = self.edge_update(torch.cat([x[src], x[dst], e], dim=1))
        messages = self.message(torch.cat([x[src], e], dim=1))
        return torch.zeros_like(x).index_add(0, dst, messages), e


class Associator(nn.Module):
    def __init__(self, node_dim=32, edge_dim=8, rounds=2):
        super().__init__()
        self.rounds = rounds
        self.node_encoder = mlp(32, 64, node_dim)
        self.edge_encoder = mlp(4, 16, edge_dim)
        self.mpn = MPN(node_dim, edge_dim)
        self.classifier = nn.Sequential(nn.Linear(edge_dim, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, scene):
        x = F.normalize(self.node_encoder(scene.look), dim=1)
        e = self.edge_encoder(scene.edge_features())
        outputs = []
        for _ in range(self.rounds):
            x, e = self.mpn(x, e, scene.src, scene.dst)
            x = F.normalize(x, dim=1)
            outputs.append(self.classifier(e).squeeze(1))
        return outputs


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--people", type=int, default=14)
    parser.add_argument("--cameras", type=int, default=4)
    parser.add_argument("--scenes", type=int, default=60)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()

    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(8)
    scenes = [Scene(args.people, args.cameras, generator) for _ in range(args.scenes)]
    model = Associator()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=1e-5)
    weight = torch.tensor(8.0)
    for epoch in range(args.epochs):
        total = torch.zeros(())
        for i in torch.randperm(len(scenes)).tolist():
            outputs = model(scenes[i])
            loss = sum(F.binary_cross_entropy_with_logits(o, scenes[i].label, pos_weight=weight) for o in outputs)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch} loss {(total / len(scenes)).item():.4f}")


if __name__ == "__main__":
    main()
