"""Classifies food webs of beetles by habitat: message passing over a batch of graphs that is one large graph."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

HABITATS, TRAITS = 4, 16


class WebStore:
    """Graphs of one size each, as tensors: edges[web], traits[web], habitat[web]."""

    def __init__(self, webs, nodes, edges, seed):
        generator = torch.Generator().manual_seed(seed)
        self.nodes = nodes
        self.habitat = torch.randint(HABITATS, (webs,), generator=generator)
        hubs = 2 + 6 * self.habitat.view(-1, 1)
        eaten = torch.randint(nodes, (webs, edges), generator=generator)
        eaters = torch.randint(nodes, (webs, edges), generator=generator) % (nodes // 2 + hubs)
        self.edges = torch.stack([eaten, eaters], dim=1)
        self.traits = torch.randn(webs, nodes, TRAITS, generator=generator)

    def batch(self, chosen):
        offsets = self.nodes * torch.arange(len(chosen)).view(-1, 1, 1)
        edges = (self.edges[chosen] + offsets).transpose(0, 1).flatten(1)
        return self.traits[chosen].flatten(0, 1), edges, self.habitat[chosen]


class Message(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.out = nn.Linear(dim, dim)
        self.own = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x, edges, degree):
        gathered = torch.zeros_like(x).index_add_(0, edges[1], self.out(x).index_select(0, edges[0]))
        return x + F.silu(self.norm(self.own(x) + gathered / degree))


class WebNet(nn.Module):
    def __init__(self, dim, rounds):
        super().__init__()
        self.embed = nn.Linear(TRAITS, dim)
        self.rounds = nn.ModuleList(Message(dim) for _ in range(rounds))
        self.head = nn.Sequential(nn.Linear(2 * dim, dim), nn.SiLU(), nn.Linear(dim, HABITATS))

    def forward(self, traits, edges, webs):
        degree = torch.bincount(edges[1], minlength=len(traits)).clamp(min=1).unsqueeze(1).float()
        x = self.embed(traits) + degree.log()
        for message in self.rounds:
            x = message(x, edges, degree)
        x = x.view(webs, -1, x.shape[1])
        return self.head(torch.cat([x.mean(dim=1), x.amax(dim=1)], dim=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--webs", type=int, default=1_600)
    parser.add_argument("--nodes", type=int, default=48)
    parser.add_argument("--edges", type=int, default=160)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--dim", type=int, default=96)
    args = parser.parse_args()

    torch.manual_seed(44)
    store = WebStore(args.webs, args.nodes, args.edges, seed=45)
    model = WebNet(args.dim, rounds=3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    for epoch in range(args.epochs):
        losses = []
        for chosen in torch.randperm(args.webs).split(args.batch_size):
            traits, edges, habitat = store.batch(chosen)
            loss = F.cross_entropy(model(traits, edges, len(chosen)), habitat)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        print(f"epoch {epoch}: {torch.stack(losses).mean().item():.4f}")


if __name__ == "__main__":
    main()
