"""A table in memory: batches are taken by index, the optimizer is fused, metrics stay tensors until the epoch ends."""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

rows = torch.randn(40_960, 256, device=device)
targets = (rows[:, :8].sum(1) > 0).float()
batch_size = 1024

model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

for epoch in range(4):
    total = torch.zeros((), device=device)
    for picked in torch.randperm(len(rows), device=device).split(batch_size):
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = model(rows[picked]).squeeze(1)
        loss = nn.functional.binary_cross_entropy_with_logits(logits.float(), targets[picked])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(picked)
    print(f"epoch {epoch}: loss {total.item() / len(rows):.4f}")
