"""A network without a convolution, on the CPU."""

import torch
from torch import nn

device = "cpu"
torch.manual_seed(0)
torch.backends.cudnn.benchmark = True

x = torch.randn(20_480, 256)
y = x[:, :10].argmax(1)
model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, fused=True)

for epoch in range(4):
    total = 0.0
    for inputs, targets in zip(x.split(512), y.split(512), strict=True):
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = model(inputs)
        loss = nn.functional.cross_entropy(logits.float(), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    print(f"epoch {epoch}: loss {total / 40:.3f}")
