"""Segments volumes that fit into the host's memory, and not on the device."""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
batch_size, side, epochs = (16, 80, 16) if device == "cuda" else (2, 16, 4)

generator = torch.Generator().manual_seed(1)
volumes = torch.rand(8 * batch_size, 1, side, side, side, generator=generator)
organs = (volumes > 0.7).to(torch.uint8)
if device == "cuda":
    volumes, organs = volumes.pin_memory(), organs.pin_memory()


def layer(inner, outer, stride=1):
    return nn.Sequential(nn.Conv3d(inner, outer, 3, stride, padding=1, bias=False), nn.BatchNorm3d(outer), nn.ReLU())


model = nn.Sequential(
    layer(1, 32, stride=2), layer(32, 64), layer(64, 64), nn.Conv3d(64, 1, 1), nn.Upsample(scale_factor=2)
).to(device, memory_format=torch.channels_last_3d)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

for epoch in range(epochs):
    for start in (batch_size * torch.randperm(8)).tolist():
        scans = volumes[start : start + batch_size].to(device, non_blocking=True)
        wanted = organs[start : start + batch_size].to(device, non_blocking=True)
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = model(scans)
        loss = nn.functional.binary_cross_entropy_with_logits(logits.float(), wanted.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch % 8 == 7:
        print(f"epoch {epoch}: loss {loss.item():.3f}")
