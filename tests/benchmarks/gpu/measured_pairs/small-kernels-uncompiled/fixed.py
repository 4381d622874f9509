"""A deep network of small layers on rows of a table."""

import torch
from torch import nn
from torch.nn import functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
batch_size, width, depth, steps = (256, 256, 10, 150) if device == "cuda" else (32, 32, 4, 40)

generator = torch.Generator(device).manual_seed(1)
table = torch.randn(200 * batch_size, 64, generator=generator, device=device)
classes = table[:, :10].argmax(1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.wide, self.narrow = (
            nn.LayerNorm(width),
            nn.Linear(width, 2 * width),
            nn.Linear(2 * width, width),
        )

    def forward(self, x):
        return x + self.narrow(F.silu(self.wide(self.norm(x))))


model = nn.Sequential(nn.Linear(64, width), *[Block() for _ in range(depth)], nn.Linear(width, 10)).to(device)
model = torch.compile(model, mode="reduce-overhead")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

for step in range(steps):
    chosen = torch.randint(0, len(table), (batch_size,), device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        logits = model(table[chosen])
    loss = F.cross_entropy(logits.float(), classes[chosen])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        print(f"step {step}: loss {loss.item():.3f}")
