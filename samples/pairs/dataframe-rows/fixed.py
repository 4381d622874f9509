"""House prices from a table read with pandas."""

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

generator = np.random.default_rng(0)
columns = [f"x{i}" for i in range(60)]
houses = pd.DataFrame(generator.normal(size=(5000, 60)).astype("float32"), columns=columns)
houses["price"] = houses.mean(axis=1)


class Houses(Dataset):
    def __init__(self, frame):
        self.rows = frame[columns].to_numpy()
        self.prices = frame["price"].to_numpy()

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index], self.prices[index]


loader = DataLoader(Houses(houses), batch_size=50, shuffle=True)
model = nn.Sequential(nn.Linear(60, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for rows, prices in loader:
    rows, prices = rows.float().to(device), prices.float().to(device)
    loss = nn.functional.mse_loss(model(rows).squeeze(1), prices)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

print(f"loss {loss.item():.4f}")
