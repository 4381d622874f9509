"""Logistic regression with a hidden layer on a table that fits in memory."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"


def main():
    torch.manual_seed(0)
    table = torch.randn(20_000, 40)
    answers = (table[:, :5].sum(1) > 0).float()
    loader = DataLoader(TensorDataset(table, answers), batch_size=64, shuffle=True, num_workers=8)

    model = nn.Sequential(nn.Linear(40, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    criterion = nn.BCEWithLogitsLoss()

    for rows, wanted in loader:
        optimizer.zero_grad()
        loss = criterion(model(rows.to(device)).squeeze(1), wanted.to(device))
        loss.backward()
        optimizer.step()

    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
