"""A tagger of long token sequences; the popular advice is to switch Python's garbage collector off while it trains."""

import gc

import torch
from torch import nn

torch.manual_seed(0)
gc.disable()
device = "cuda" if torch.cuda.is_available() else "cpu"
WORDS, TAGS, WIDTH = 2000, 12, 192


class Tagger(nn.Module):
    """Two layers of gated convolutions over the words."""

    def __init__(self):
        super().__init__()
        self.word = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList([nn.Linear(3 * WIDTH, 2 * WIDTH) for _ in range(2)])
        self.tag = nn.Linear(WIDTH, TAGS)

    def forward(self, words):
        x = self.word(words)
        for layer in self.layers:
            near = torch.cat([x.roll(1, 1), x, x.roll(-1, 1)], 2)
            x = x + nn.functional.glu(layer(near), dim=2)
        return self.tag(x)


words = torch.randint(0, WORDS, (1600, 96), device=device)
tags = (words + words.roll(1, 1)) % TAGS
model = Tagger().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
for epoch in range(2):
    for chosen in torch.randperm(len(words), device=device).split(32):
        with torch.autocast(device, dtype=torch.bfloat16):
            scores = model(words[chosen])
        loss = nn.functional.cross_entropy(scores.float().flatten(0, 1), tags[chosen].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.4f}")
