"""A deep and narrow transformer that tags sequences of events."""

import torch
from torch import nn
from torch.nn import functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
batch_size, length, width, depth, steps = (32, 128, 384, 12, 120) if device == "cuda" else (4, 16, 32, 3, 40)

generator = torch.Generator(device).manual_seed(1)
events = torch.randint(0, 500, (64 * batch_size, length), generator=generator, device=device)
tags = events % 7


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(500, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, 7)

    def forward(self, events):
        return self.head(self.layers(self.embedding(events)))


model = Tagger().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05, fused=True)

for step in range(steps):
    chosen = torch.randint(0, len(events), (batch_size,), device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        logits = model(events[chosen])
    loss = F.cross_entropy(logits.float().flatten(0, 1), tags[chosen].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 39:
        print(f"step {step}: loss {loss.item():.3f}")
