"""Fine-tunes a text encoder, and cleans up after each step."""

import torch
from torch import nn
from torch.nn import functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
batch_size, length, width, depth, steps = (32, 256, 512, 6, 100) if device == "cuda" else (4, 16, 32, 2, 40)

generator = torch.Generator(device).manual_seed(1)
reviews = torch.randint(0, 8000, (32 * batch_size, length), generator=generator, device=device)
stars = torch.randint(0, 5, (len(reviews),), generator=generator, device=device)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(8000, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, 5)

    def forward(self, words):
        return self.head(self.layers(self.embedding(words)).mean(1))


model = Encoder().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

for step in range(steps):
    chosen = torch.randint(0, len(reviews), (batch_size,), device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        logits = model(reviews[chosen])
    loss = F.cross_entropy(logits.float(), stars[chosen])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.cuda.empty_cache()
    if step % 50 == 49:
        print(f"step {step}: loss {loss.item():.3f}")
