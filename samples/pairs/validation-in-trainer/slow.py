"""Classifies motion sensors; a trainer class validates every few steps and stops early."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)


class SensorNet(nn.Module):
    def __init__(self, channels=9, width=48, classes=6):
        super().__init__()
        self.convs = nn.ModuleList(
            [nn.Conv1d(channels if i == 0 else width, width, 5, padding=2, stride=2) for i in range(4)]
        )
        self.norms = nn.ModuleList([nn.BatchNorm1d(width) for _ in range(4)])
        self.drop, self.head = nn.Dropout(0.2), nn.Linear(width, classes)

    def forward(self, x):
        for conv, norm in zip(self.convs, self.norms):
            x = nn.functional.gelu(norm(conv(x)))
        return self.head(self.drop(x.mean(2)))


class Trainer:
    def __init__(self, model, train, valid, every=4, patience=20):
        self.model, self.train_loader, self.valid_loader = model, train, valid
        self.every, self.patience, self.best, self.bad = every, patience, float("inf"), 0
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def loss(self, batch):
        x, y = (t.to(device) for t in batch)
        return nn.functional.cross_entropy(self.model(x), y)

    def validate(self):
        self.model.eval()
        total = sum(self.loss(batch) for batch in self.valid_loader).item() / len(self.valid_loader)
        self.model.train()
        self.bad = 0 if total < self.best else self.bad + 1
        self.best = min(self.best, total)
        return total

    def fit(self, epochs):
        for epoch in range(epochs):
            for step, batch in enumerate(self.train_loader):
                loss = self.loss(batch)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                if step % self.every == 0:
                    self.validate()
                if self.bad > self.patience:
                    return
            print(f"epoch {epoch}: best {self.best:.4f}")


labels = torch.randint(0, 6, (1800,))
signals = torch.randn(1800, 9, 128) + torch.randn(6, 9, 128)[labels]
train, valid = random_split(TensorDataset(signals, labels), [1600, 200])
Trainer(
    SensorNet().to(device), DataLoader(train, batch_size=32, shuffle=True), DataLoader(valid, batch_size=100), every=4
).fit(3)
