"""Trains ResNet-18 in bfloat16 on pictures held in memory."""

import torch
import torchvision
from torch.nn import functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
batch_size, side, steps = (256, 128, 100) if device == "cuda" else (4, 32, 25)

generator = torch.Generator(device).manual_seed(1)
pictures = torch.randint(0, 256, (8 * batch_size, 3, side, side), generator=generator, device=device, dtype=torch.uint8)
labels = torch.randint(0, 100, (len(pictures),), generator=generator, device=device)
model = torchvision.models.resnet18(num_classes=100).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, fused=True)

for step in range(steps):
    chosen = torch.randint(0, len(pictures), (batch_size,), device=device)
    images = pictures[chosen].float() / 255
    with torch.autocast(device, dtype=torch.bfloat16):
        logits = model(images)
    loss = F.cross_entropy(logits.float(), labels[chosen])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        print(f"step {step}: loss {loss.item():.3f}")
