"""A compiled classifier of sequences, in batches as long as their longest one."""

import random

import torch
from torch import nn
from torch.nn import functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
random.seed(0)
batch_size, width, steps = (64, 256, 150) if device == "cuda" else (4, 32, 40)
longest = 128


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(64, width, padding_idx=0)
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.head = nn.Linear(width, 10)

    def forward(self, proteins):
        x = self.embedding(proteins)
        x = F.layer_norm(x + self.layers(x), (width,)) * (proteins > 0)[..., None]
        return self.head(x.sum(1))


generator = torch.Generator(device).manual_seed(1)
proteins = torch.randint(1, 64, (4096, longest), generator=generator, device=device)
families = torch.randint(0, 10, (len(proteins),), generator=generator, device=device)
model = Classifier().to(device)
compiled = torch.compile(model, dynamic=False)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

for step in range(steps):
    chosen = torch.randint(0, len(proteins), (batch_size,), device=device)
    batch = proteins[chosen, : random.randrange(longest // 2, longest)]
    with torch.autocast(device, dtype=torch.bfloat16):
        logits = compiled(F.pad(batch, (0, longest - batch.shape[1])))
    loss = F.cross_entropy(logits.float(), families[chosen])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        print(f"step {step}: loss {loss.item():.3f}")
