"""Decentralised path planning: robots see their surroundings, a graph filter shares features, experts are imitated."""

import torch
import torch.nn as nn
import torch.nn.functional as F

AGENTS, VIEW, MOVES = 8, 11, 5


class ExpertCases:
    """Views hold obstacles, the goal and other robots; the expert steps towards the goal if the cell is free."""

    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        obstacles = (torch.rand(count, AGENTS, VIEW, VIEW, generator=g) < 0.15).float()
        goal = torch.zeros(count, AGENTS, VIEW * VIEW)
        where = torch.randint(0, VIEW * VIEW, (count, AGENTS, 1), generator=g)
        goal.scatter_(2, where, 1.0)
        others = (torch.rand(count, AGENTS, VIEW, VIEW, generator=g) < 0.05).float()
        self.views = torch.stack([obstacles, goal.view_as(obstacles), others], 2)
        dy, dx = where.squeeze(2) // VIEW - VIEW // 2, where.squeeze(2) % VIEW - VIEW // 2
        across = torch.where(dx > 0, 1, 2)
        down = torch.where(dy > 0, 3, 4)
        self.moves = torch.where(dx.abs() >= dy.abs(), across, down).masked_fill((dx == 0) & (dy == 0), 0)
        place = torch.rand(count, AGENTS, 2, generator=g)
        near = (torch.cdist(place, place) < 0.35).float()
        self.graph = near / near.sum(2, keepdim=True)

    def batches(self, size, generator):
        for index in torch.randperm(len(self.views), generator=generator).split(size):
            yield self.views[index], self.graph[index], self.moves[index]


class GraphFilter(nn.Module):
    def __init__(self, inputs, outputs, taps):
        super().__init__()
        self.taps = nn.ModuleList(nn.Linear(inputs, outputs, bias=False) for _ in range(taps))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x, graph):
        y = self.bias
        for tap in self.taps:
            y = y + tap(x)
            x = graph @ x
        return y


class PlannerNet(nn.Module):
    def __init__(self, features=64, taps=3):
        super().__init__()
        layers, chans = [], 3
        for out in (16, 24, 32):
            layers += [nn.Conv2d(chans, out, 3, padding=1), nn.GroupNorm(4, out), nn.ReLU()]
            chans = out
        self.conv_layers = nn.Sequential(*layers, nn.AdaptiveMaxPool2d(3))
        self.compress = nn.Sequential(nn.Linear(chans * 9, features), nn.ReLU())
        self.filter = GraphFilter(features, features, taps)
        self.action = nn.Sequential(nn.Linear(features, features), nn.ReLU(), nn.Linear(features, MOVES))
        self.features = features

    def forward(self, views, graph):
        batch = views.shape[0]
        feature = torch.zeros(batch, AGENTS, self.features)
        for agent in range(AGENTS):
            feature_map = self.conv_layers(views[:, agent])
            feature[:, agent] = self.compress(feature_map.flatten(1))
        shared = F.relu(self.filter(feature, graph))
        actions = []
        for agent in range(AGENTS):
            actions.append(self.action(shared[:, agent]))
        return torch.stack(actions, 1)


class Agent:
    def __init__(self, config):
        self.config = config
        self.model = PlannerNet()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=config["lr"], weight_decay=1e-5)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, config["epochs"])

    def train(self):
        cases, test = ExpertCases(self.config["cases"], 0), ExpertCases(64, 1)
        generator = torch.Generator().manual_seed(5)
        for epoch in range(self.config["epochs"]):
            for step, (views, graph, moves) in enumerate(cases.batches(self.config["batch"], generator)):
                logits = self.model(views, graph)
                loss = F.cross_entropy(logits.flatten(0, 1), moves.flatten())
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                if step % 30 == 0:
                    print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
            self.scheduler.step()
            with torch.no_grad():
                right = self.model(test.views, test.graph).argmax(2) == test.moves
            print(f"epoch {epoch} test accuracy {right.float().mean().item():.3f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    Agent({"lr": 1e-3, "epochs": 3, "cases": 480, "batch": 8}).train()
