"""Fraud in card payments; the area under the ROC curve is watched while the network learns."""

import torch
from torch import nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"


class RunningAUC:
    """Area under the ROC curve over everything that the epoch has seen."""

    def __init__(self):
        self.scores, self.labels = [], []

    def update(self, scores, labels):
        self.scores.append(scores.detach())
        self.labels.append(labels)

    def compute(self):
        scores, labels = torch.cat(self.scores), torch.cat(self.labels)
        rank = scores.argsort().argsort().double() + 1
        hits = labels.sum()
        return (rank[labels == 1].sum() - hits * (hits + 1) / 2) / (hits * (len(labels) - hits))


class Trainer:
    def __init__(self, model, rate):
        self.model, self.criterion = model, nn.BCEWithLogitsLoss()
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=rate, fused=True)

    def step(self, x, y):
        scores = self.model(x).squeeze(1)
        loss = self.criterion(scores, y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return scores

    def epoch(self, x, y, size=512):
        auc = RunningAUC()
        for chosen in torch.randperm(len(x), device=x.device).split(size):
            auc.update(self.step(x[chosen], y[chosen]), y[chosen])
            value = auc.compute()
        return value.item()


def payments(count):
    x = torch.randn(count, 40, device=device)
    odds = (x @ torch.randn(40, device=device)) + 2 * x[:, 0] * x[:, 1] - 6
    return x, torch.bernoulli(odds.sigmoid())


x, y = payments(61_440)
net = nn.Sequential(nn.Linear(40, 192), nn.ReLU(), nn.Linear(192, 192), nn.ReLU(), nn.Linear(192, 1)).to(device)
trainer = Trainer(net, 1e-3)
for epoch in range(2):
    print(f"epoch {epoch}: area {trainer.epoch(x, y):.4f}")
