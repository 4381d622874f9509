"""A network of matrix products for tables; the popular advice is to change the memory format to channels last."""

import torch
from torch import nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"


class Gated(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.both = nn.LayerNorm(width), nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        value, gate = self.both(self.norm(x)).chunk(2, 1)
        return x + self.out(value * gate.sigmoid())


model = nn.Sequential(nn.Linear(120, 512), *[Gated(512) for _ in range(3)], nn.Linear(512, 8)).to(device)
model = model.to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, fused=True)
table = torch.randn(32_768, 120, device=device)
kinds = table[:, :8].argmax(1)
for epoch in range(2):
    for chosen in torch.randperm(len(table), device=device).split(512):
        with torch.autocast(device, dtype=torch.bfloat16):
            scores = model(table[chosen])
        loss = nn.functional.cross_entropy(scores.float(), kinds[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.4f}")
