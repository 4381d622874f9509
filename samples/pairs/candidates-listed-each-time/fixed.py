"""Recognises whales by their flukes: a Siamese dataset gives an anchor, the same animal again, and another one."""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
random.seed(0)
PICTURES, WHALES, SIDE = 4000, 200, 32


class Flukes(Dataset):
    def __init__(self):
        self.whales = torch.randint(0, WHALES, (PICTURES,)).tolist()
        shapes = torch.randn(WHALES, 1, SIDE, SIDE)
        self.pictures = [shapes[whale] + 1.5 * torch.randn(1, SIDE, SIDE) for whale in self.whales]
        self.of = {w: [i for i, whale in enumerate(self.whales) if whale == w] for w in range(WHALES)}
        self.not_of = {w: [i for i, whale in enumerate(self.whales) if whale != w] for w in range(WHALES)}

    def __len__(self):
        return 1600

    def __getitem__(self, index):
        whale = self.whales[index]
        same = [i for i in self.of[whale] if i != index]
        positive, negative = random.choice(same), random.choice(self.not_of[whale])
        return self.pictures[index], self.pictures[positive], self.pictures[negative]


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 5, 2, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten()
        )
        self.out = nn.Linear(32 * (SIDE // 4) ** 2, 64)

    def forward(self, picture):
        return nn.functional.normalize(self.out(self.layers(picture)), dim=1)


def main():
    loader = DataLoader(Flukes(), batch_size=16, shuffle=True)
    model, criterion = Embedder(), nn.TripletMarginLoss(margin=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    for epoch in range(3):
        for triplet in loader:
            anchor, positive, negative = model(torch.cat(triplet)).chunk(3)
            loss = criterion(anchor, positive, negative)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
