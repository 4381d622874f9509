"""Trains a small residual network on pictures of 32 x 32."""

import torch
import torchvision
from torch.nn import functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
batch_size = 64
steps = 150 if device == "cuda" else 25

generator = torch.Generator(device).manual_seed(1)
pictures = torch.randint(0, 256, (10_000, 3, 32, 32), generator=generator, device=device, dtype=torch.uint8)
labels = torch.randint(0, 10, (len(pictures),), generator=generator, device=device)
model = torchvision.models.resnet18(num_classes=10).to(device, memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, fused=True)

for step in range(steps):
    chosen = torch.randint(0, len(pictures), (batch_size,), device=device)
    images = pictures[chosen].to(memory_format=torch.channels_last).float() / 255
    with torch.autocast(device, dtype=torch.bfloat16):
        loss = F.cross_entropy(model(images), labels[chosen])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        print(f"step {step}: loss {loss.item():.3f}")
