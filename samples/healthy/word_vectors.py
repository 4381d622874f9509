"""Word vectors by skip-grams with negative samples: large tables whose gradients are sparse."""

import torch
from torch import nn

torch.manual_seed(0)
WORDS, WIDTH, NEGATIVES = 100_000, 100, 5

text = (torch.rand(200_000).pow(3) * WORDS).long()
inner, outer = nn.Embedding(WORDS, WIDTH, sparse=True), nn.Embedding(WORDS, WIDTH, sparse=True)
nn.init.uniform_(inner.weight, -0.5 / WIDTH, 0.5 / WIDTH)
nn.init.zeros_(outer.weight)
optimizer = torch.optim.SGD([*inner.parameters(), *outer.parameters()], lr=0.05)


def batches(size, window=4):
    """Centre words with one word near each, at random."""
    order = torch.randperm(len(text) - 2 * window)[: 150 * size] + window
    for centre in order.split(size):
        offset = torch.randint(1, window + 1, centre.shape) * (torch.randint(0, 2, centre.shape) * 2 - 1)
        yield text[centre], text[centre + offset]


for step, (centre, near) in enumerate(batches(1024)):
    words = torch.cat([near[:, None], torch.randint(0, WORDS, (len(near), NEGATIVES))], 1)
    scores = torch.bmm(outer(words), inner(centre)[:, :, None]).squeeze(2)
    wanted = torch.zeros_like(scores)
    wanted[:, 0] = 1
    loss = nn.functional.binary_cross_entropy_with_logits(scores, wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step}: {loss.item():.4f}")
