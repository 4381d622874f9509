"""Adds noise and random shifts to the pictures of each batch before the step."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
np.random.seed(0)

images = torch.randn(3200, 3, 32, 32)
labels = torch.randint(0, 10, (3200,))
loader = DataLoader(TensorDataset(images, labels), batch_size=32, shuffle=True)
model = nn.Sequential(
    nn.Conv2d(3, 32, 3, stride=2),
    nn.ReLU(),
    nn.Conv2d(32, 64, 3, stride=2),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(3136, 10),
).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def augment(batch):
    noisy = []
    for image in batch.cpu().numpy():
        shift = np.random.randint(-4, 5)
        noisy.append(np.roll(image, shift, axis=2) + np.random.normal(0, 0.1, image.shape))
    return torch.tensor(np.array(noisy), dtype=torch.float32, device=device)


for step, (inputs, targets) in enumerate(loader):
    inputs = augment(inputs.to(device))
    loss = nn.functional.cross_entropy(model(inputs), targets.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step}: loss {loss.item():.3f}")
