"""Claims of an insurer from a table of the insured: a deep, narrow network, kept small by a penalty on its weights."""

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
L2 = 1e-4


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, x):
        return x + 0.3 * self.net(x)


class ClaimNet(nn.Module):
    def __init__(self, columns, width=64, depth=10):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(columns, width), *(Block(width) for _ in range(depth)))
        self.often = nn.Linear(width, 1)
        self.much = nn.Linear(width, 1)

    def forward(self, x):
        x = self.body(x)
        return self.often(x).squeeze(1), self.much(x).squeeze(1)


class Trainer:
    def __init__(self, model, lr):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, fused=True)
        self.often_loss = nn.PoissonNLLLoss()
        self.much_loss = nn.SmoothL1Loss()

    def criterion(self, x, often, much):
        guess_often, guess_much = self.model(x)
        return self.often_loss(guess_often, often) + 0.5 * self.much_loss(guess_much, much)

    def training_step(self, batch):
        loss = self.criterion(*batch)
        penalty = sum(parameter.pow(2).sum() for parameter in self.model.parameters())
        total = loss + L2 * penalty
        self.optimizer.zero_grad()
        total.backward()
        self.optimizer.step()
        return loss.detach()

    def fit(self, table, epochs, batch_size):
        for epoch in range(epochs):
            sum_of_losses = torch.zeros((), device=DEVICE)
            parts = torch.randperm(len(table[0]), device=DEVICE).split(batch_size)
            for rows in parts:
                sum_of_losses += self.training_step([column[rows] for column in table])
            print(f"epoch {epoch}: {sum_of_losses.item() / len(parts):.4f}")


def insured(count, columns=30):
    """Who drives much and far has accidents more often, and larger ones."""
    x = torch.randn(count, columns)
    rate = (0.5 * x[:, 0] + 0.3 * x[:, 1] * x[:, 2] - 1).exp()
    return [tensor.to(DEVICE) for tensor in (x, torch.poisson(rate), (x[:, 3] + 0.1 * torch.randn(count)).relu())]


if __name__ == "__main__":
    torch.manual_seed(0)
    Trainer(ClaimNet(30).to(DEVICE), lr=0.01).fit(insured(25_600), epochs=3, batch_size=256)
