"""Click prediction from a log in which every line is a JSON record."""

import json
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
random.seed(0)


def generated_log(count=2000, width=300):
    for _ in range(count):
        features = {f"feature_{i}": round(random.random(), 4) for i in range(width)}
        yield json.dumps({"features": features, "clicked": random.randint(0, 1)})


def parse(line):
    record = json.loads(line)
    return torch.tensor(list(record["features"].values())), float(record["clicked"])


class Clicks(Dataset):
    def __init__(self, lines):
        self.records = list(lines)

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        return parse(self.records[index])


loader = DataLoader(Clicks(generated_log()), batch_size=64, shuffle=True)
model = nn.Sequential(nn.Linear(300, 1024), nn.ReLU(), nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 1)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

for epoch in range(5):
    for features, clicked in loader:
        logits = model(features.to(device)).squeeze(1)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, clicked.float().to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}")
