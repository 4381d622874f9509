"""A small convolutional network on a machine that once had many cores."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
torch.set_num_threads(16)

x = torch.randn(3200, 3, 32, 32)
y = torch.randint(0, 10, (3200,))
loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
model = nn.Sequential(
    nn.Conv2d(3, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(5408, 10)
).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for step, (inputs, targets) in enumerate(loader):
    loss = nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 0:
        print(f"step {step}: loss {loss.item():.3f}")
