"""A dataset of two million Python objects, which the garbage collector walks."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SAMPLES, BATCH = 500_000, 256


class Records(Dataset):
    def __init__(self):
        self.records = [
            {"user": [index % 1000], "item": [index % 5000], "label": [index % 2]} for index in range(SAMPLES)
        ]

    def __len__(self):
        return SAMPLES // 20

    def __getitem__(self, index):
        record = self.records[index]
        return record["user"][0], record["item"][0], float(record["label"][0])


users, items = nn.Embedding(1000, 64), nn.Embedding(5000, 64)
optimizer = torch.optim.Adam([*users.parameters(), *items.parameters()])
for _ in range(3):
    for user, item, label in DataLoader(Records(), batch_size=BATCH, shuffle=True):
        score = (users(user) * items(item)).sum(1)
        loss = nn.functional.binary_cross_entropy_with_logits(score, label.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
