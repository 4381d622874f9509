"""Three tasks from one picture of a road (depth, ground, distance to the car ahead): a shared trunk, three heads."""

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)


class Road(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(3, width, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
        )
        self.depth = nn.Conv2d(width, 1, 1)
        self.ground = nn.Conv2d(width, 4, 1)
        self.ahead = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1))

    def forward(self, pictures):
        seen = self.trunk(pictures)
        return self.depth(seen).squeeze(1), self.ground(seen), self.ahead(seen).squeeze(1)


def roads(count, side=40):
    """Pictures, and what is true of them at half their resolution."""
    slope = torch.linspace(1, 0, side)[:, None] * torch.rand(count, 1, 1)
    kinds = torch.randint(0, 4, (count, 1, 4)).repeat_interleave(side // 4, 2).expand(-1, side, -1)
    pictures = torch.stack([slope.expand(-1, -1, side), kinds / 4, torch.rand(count, side, side)], 1)
    return pictures, slope.expand(-1, -1, side)[:, ::2, ::2], kinds[:, ::2, ::2], slope[:, 0, 0]


class Trainer:
    def __init__(self, model, weights):
        self.model, self.weights = model, weights
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9, fused=True)

    def losses(self, batch):
        pictures, depth, ground, ahead = batch
        guesses = self.model(pictures)
        return [
            F.l1_loss(guesses[0], depth),
            F.cross_entropy(guesses[1], ground),
            F.smooth_l1_loss(guesses[2], ahead),
        ]

    def step(self, batch):
        losses = self.losses(batch)
        self.optimizer.zero_grad()
        for weight, loss in zip(self.weights, losses):
            (weight * loss).backward(retain_graph=True)
        self.optimizer.step()
        return [loss.detach() for loss in losses]


data = [tensor.to(device) for tensor in roads(640)]
trainer = Trainer(Road().to(device), weights=(1.0, 0.5, 2.0))
for epoch in range(2):
    for chosen in torch.randperm(640, device=device).split(8):
        losses = trainer.step([tensor[chosen] for tensor in data])
    print(f"epoch {epoch}: " + ", ".join(f"{loss.item():.4f}" for loss in losses))
