"""Translates short commands between two languages: an encoder, and a decoder that is taught by force half the time."""

import random

import torch
from torch import nn

torch.manual_seed(0)
random.seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
WORDS, LENGTH, WIDTH = 1200, 32, 96


class Decoder(nn.Module):
    """Reads the sentence by attention and writes one word at a time."""

    def __init__(self):
        super().__init__()
        self.word = nn.Embedding(WORDS, WIDTH)
        self.cell = nn.GRUCell(2 * WIDTH, WIDTH)
        self.score = nn.Linear(2 * WIDTH, WORDS)

    def forward(self, memory, wanted):
        batch, length = wanted.shape
        state, last = memory[:, -1], torch.zeros_like(wanted[:, 0])
        outputs = torch.zeros(batch, length, WORDS, device=memory.device)
        for t in range(length):
            weight = torch.bmm(memory, state[:, :, None]).softmax(1)
            context = (weight * memory).sum(1)
            state = self.cell(torch.cat([self.word(last), context], 1), state)
            scores = self.score(torch.cat([state, context], 1))
            outputs[:, t] = scores
            last = wanted[:, t] if random.random() < 0.5 else scores.argmax(1)
        return outputs


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.word = nn.Embedding(WORDS, WIDTH)
        self.encoder = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.decoder = Decoder()

    def forward(self, words, wanted):
        memory, _ = self.encoder(self.word(words))
        return self.decoder(memory, wanted)


source = torch.randint(0, WORDS, (1600, LENGTH), device=device)
target = (source + 7) % WORDS
model = Translator().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
for epoch in range(2):
    for chosen in torch.randperm(len(source), device=device).split(16):
        scores = model(source[chosen], target[chosen])
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), target[chosen].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.4f}")
