"""Predicts masked frames of speech from the frames around them."""

import torch
from torch import nn
from torch.nn import functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
batch_size, frames, width, depth, steps = (32, 200, 384, 8, 150) if device == "cuda" else (4, 20, 32, 2, 40)

generator = torch.Generator(device).manual_seed(1)
speech = torch.randn(16 * batch_size, frames, 80, generator=generator, device=device)
units = torch.randint(0, 256, (len(speech), frames), generator=generator, device=device)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.entry, self.masked = nn.Linear(80, width), nn.Parameter(torch.zeros(80))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, 256)

    def forward(self, x, masked):
        x = torch.where(masked[..., None], self.masked, x)
        return self.head(self.layers(self.entry(x)))


model = Encoder().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)

for step in range(steps):
    chosen = torch.randint(0, len(speech), (batch_size,), device=device)
    masked = torch.rand(batch_size, frames, device=device) < 0.4
    with torch.autocast(device, dtype=torch.bfloat16):
        logits = model(speech[chosen], masked).float()
    wanted = units[chosen].masked_fill(~masked, -100)
    loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        print(f"step {step}: loss {loss.item():.3f}")
