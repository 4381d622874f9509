"""Predicts the next chord of a tune from those before; the popular advice is a lower precision of fp32 products."""

import torch
from torch import nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
CHORDS, PAST, WIDTH = 512, 16, 192


class Composer(nn.Module):
    """Dilated causal convolutions over the chords so far, and a score for each chord that could follow."""

    def __init__(self):
        super().__init__()
        self.chord = nn.Embedding(CHORDS, WIDTH)
        self.layers = nn.ModuleList([nn.Linear(2 * WIDTH, 2 * WIDTH) for _ in range(4)])
        self.norm = nn.LayerNorm(WIDTH)
        self.score = nn.Linear(WIDTH, CHORDS)

    def forward(self, chords):
        x = self.chord(chords)
        for layer in self.layers:
            earlier, later = x.unflatten(1, (-1, 2)).unbind(2)
            x = nn.functional.glu(layer(torch.cat([earlier, later], 2)))
        return self.score(self.norm(x[:, -1]))


tunes = (torch.rand(40_000, device=device).square() * CHORDS).long()
windows = tunes.unfold(0, PAST + 1, 1)
model = Composer().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
for step, chosen in enumerate(torch.randperm(len(windows), device=device)[: 256 * 150].split(256)):
    batch = windows[chosen]
    with torch.autocast(device, dtype=torch.bfloat16):
        scores = model(batch[:, :-1])
    loss = nn.functional.cross_entropy(scores.float(), batch[:, -1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step}: {loss.item():.4f}")
