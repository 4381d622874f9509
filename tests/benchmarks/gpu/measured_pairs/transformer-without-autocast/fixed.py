"""A vision transformer for small pictures."""

import torch
from torch import nn
from torch.nn import functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
batch_size, width, heads, depth, steps = (128, 512, 8, 6, 120) if device == "cuda" else (4, 32, 4, 2, 40)

generator = torch.Generator(device).manual_seed(1)
pictures = torch.rand(16 * batch_size, 3, 64, 64, generator=generator, device=device)
labels = torch.randint(0, 100, (len(pictures),), generator=generator, device=device)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, stride=8)
        self.places = nn.Parameter(0.02 * torch.randn(64, width))
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, 100)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2) + self.places
        return self.head(self.layers(x).mean(1))


model = Classifier().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)

for step in range(steps):
    chosen = torch.randint(0, len(pictures), (batch_size,), device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        loss = F.cross_entropy(model(pictures[chosen]), labels[chosen])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 39:
        print(f"step {step}: loss {loss.item():.3f}")
