"""An autoencoder; another network, trained before, scores what it makes, for the record."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

loader = DataLoader(TensorDataset(torch.rand(4800, 784)), batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 784), nn.Sigmoid()).to(device)
judge = nn.Sequential(nn.Linear(784, 4096), nn.Tanh(), nn.Linear(4096, 1), nn.Sigmoid()).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

scores = []
for (images,) in loader:
    images = images.to(device)
    restored = model(images)
    loss = nn.functional.mse_loss(restored, images)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scores.append(judge(restored).mean())
print(f"loss {loss.item():.3f}, scores {scores[0].item():.3f} to {scores[-1].item():.3f}")
