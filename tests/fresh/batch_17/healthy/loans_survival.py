"""When is a loan paid back early? Discrete-time survival with one embedding table for all categories."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Config:
    rows: int = 60000
    sizes: tuple[int, ...] = (50, 12, 300, 8, 24, 90, 5, 40)
    numbers: int = 20
    months: int = 24
    width: int = 192
    embedding: int = 12
    batch_size: int = 512
    epochs: int = 6
    lr: float = 2e-3


def make_loans(config, seed):
    """Numbers, categories counted on through one table, the month a loan ends in and whether that was seen."""
    gen = torch.Generator().manual_seed(seed)
    numbers = torch.randn(config.rows, config.numbers, generator=gen)
    sizes = torch.tensor(config.sizes)
    codes = (torch.rand(config.rows, len(sizes), generator=gen) * sizes).long()
    first = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)[:-1]])
    effect = torch.randn(int(sizes.sum()), generator=gen)
    risk = numbers[:, :3].sum(1) * 0.5 + effect[codes + first].mean(1) - 2.5
    draws = torch.rand(config.rows, config.months, generator=gen)
    ended = draws < torch.sigmoid(risk[:, None] + 0.05 * torch.arange(config.months))
    seen = ended.any(1)
    month = torch.where(seen, ended.float().argmax(1), config.months - 1)
    return numbers, codes + first, month, seen


class HazardNet(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.table = nn.Embedding(sum(config.sizes), config.embedding)
        self.norm = nn.BatchNorm1d(config.numbers)
        inputs = config.numbers + len(config.sizes) * config.embedding
        layers = []
        for _ in range(3):
            layers += [nn.Linear(inputs, config.width), nn.BatchNorm1d(config.width), nn.ReLU(inplace=True)]
            layers.append(nn.Dropout(0.1))
            inputs = config.width
        self.body = nn.Sequential(*layers, nn.Linear(inputs, config.months))

    def forward(self, numbers, codes):
        return self.body(torch.cat([self.norm(numbers), self.table(codes).flatten(1)], 1))


def survival_loss(logits, month, seen):
    """Binary cross entropy of the hazards of all months up to the last that was seen."""
    calendar = torch.arange(logits.shape[1])
    happened = ((calendar == month[:, None]) & seen[:, None]).float()
    weight = (calendar <= month[:, None]).float()
    total = F.binary_cross_entropy_with_logits(logits, happened, weight, reduction="sum")
    return total / len(logits)


@torch.inference_mode()
def evaluate(model, data, rows, batch_size=4096):
    model.eval()
    total = sum(
        survival_loss(model(data[0][part], data[1][part]), data[2][part], data[3][part]) * len(part)
        for part in rows.split(batch_size)
    )
    model.train()
    return total.item() / len(rows)


def main(config):
    torch.manual_seed(0)
    data = make_loans(config, seed=19)
    order = torch.randperm(config.rows)
    train, held_out = order[config.rows // 10 :], order[: config.rows // 10]
    model = HazardNet(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, weight_decay=1e-4, fused=True)
    for epoch in range(config.epochs):
        for rows in train[torch.randperm(len(train))].split(config.batch_size):
            numbers, codes, month, seen = (part[rows] for part in data)
            loss = survival_loss(model(numbers, codes), month, seen)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}, held out {evaluate(model, data, held_out):.4f}")


if __name__ == "__main__":
    main(Config())
