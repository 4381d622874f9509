"""Prototypical networks: episodes of a few classes with a few examples each."""

from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F


class Episodes:
    """Pictures lie in memory by class, so that an episode is one gather."""

    def __init__(self, classes, examples, size, seed):
        generator = torch.Generator().manual_seed(seed)
        coarse = torch.rand(classes, 1, 6, 6, generator=generator).gt(0.55).float()
        shapes = F.interpolate(coarse, size, mode="bilinear", align_corners=False)
        noise = torch.randn(classes, examples, size, size, generator=generator)
        self.pictures = shapes.expand(-1, examples, -1, -1) + 0.6 * noise

    def draw(self, way, shot, query):
        classes = torch.randperm(len(self.pictures))[:way, None]
        examples = torch.rand(way, self.pictures.shape[1]).argsort(dim=1)[:, : shot + query]
        chosen = self.pictures[classes, examples][:, :, None]
        return chosen[:, :shot].flatten(0, 1), chosen[:, shot:].flatten(0, 1)


def block(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)
    )


class ProtoNet(nn.Module):
    def __init__(self, hidden=32, out=48):
        super().__init__()
        self.encoder = nn.Sequential(block(1, hidden), block(hidden, hidden), block(hidden, out), nn.Flatten())

    def forward(self, support, query, way):
        features = self.encoder(torch.cat((support, query)))
        prototypes = features[: len(support)].view(way, -1, features.shape[1]).mean(dim=1)
        return -torch.cdist(features[len(support) :], prototypes).square()


def train(model, episodes, options):
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr, fused=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 60, gamma=0.5)
    labels = torch.arange(options.way).repeat_interleave(options.query)
    losses, right = [], []
    for episode in range(1, options.episodes + 1):
        support, query = episodes.draw(options.way, options.shot, options.query)
        logits = model(support, query, options.way)
        loss = F.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.detach())
        right.append((logits.detach().argmax(dim=1) == labels).float().mean())
        if episode % 60 == 0:
            loss, share = (torch.stack(values).mean().item() for values in (losses, right))
            print(f"episode {episode}: loss {loss:.4f} accuracy {share:.3f}")
            losses.clear()
            right.clear()


if __name__ == "__main__":
    torch.manual_seed(50)
    options = SimpleNamespace(way=10, shot=3, query=6, episodes=180, lr=2e-3)
    train(ProtoNet(), Episodes(classes=80, examples=20, size=24, seed=51), options)
