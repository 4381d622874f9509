"""Trains with a short look at the validation set every 5 steps."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

x = torch.randn(3200, 128)
y = (x[:, 0] * x[:, 1] > 0).long()
loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
validation_x = torch.randn(2048, 128, device=device)
validation_y = (validation_x[:, 0] * validation_x[:, 1] > 0).long()

layers = []
width = 128
for _ in range(6):
    layers += [nn.Linear(width, 384), nn.GELU(), nn.Dropout(0.1)]
    width = 384
model = nn.Sequential(*layers, nn.Linear(384, 2)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)


@torch.no_grad()
def evaluate():
    model.eval()
    accuracy = (model(validation_x).argmax(1) == validation_y).float().mean().item()
    model.train()
    return accuracy


for step, (inputs, targets) in enumerate(loader):
    loss = nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 5 == 0:
        accuracy = evaluate()

print(f"loss {loss.item():.3f}, validation accuracy {accuracy:.3f}")
