"""Normalises spelling in old letters: a recurrent encoder and an attentive decoder with teacher forcing."""

import torch
from torch import nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
LETTERS, LENGTH, WIDTH = 60, 48, 96


class Decoder(nn.Module):
    """Reads the sentence by attention, one letter at a time."""

    def __init__(self):
        super().__init__()
        self.letter = nn.Embedding(LETTERS, WIDTH)
        self.cell = nn.GRUCell(2 * WIDTH, WIDTH)

    def forward(self, memory, wanted):
        batch, length = wanted.shape
        seen = self.letter(wanted)
        state = memory[:, -1]
        outputs = torch.zeros(batch, length, 2 * WIDTH, device=memory.device)
        for t in range(length):
            weight = torch.bmm(memory, state[:, :, None]).softmax(1)
            context = (weight * memory).sum(1)
            if t > 0:
                state = self.cell(torch.cat([seen[:, t - 1], context], 1), state)
            outputs[:, t] = torch.cat([state, context], 1)
        return outputs


class Speller(nn.Module):
    def __init__(self):
        super().__init__()
        self.letter = nn.Embedding(LETTERS, WIDTH)
        self.encoder = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.decoder = Decoder()
        self.score = nn.Linear(2 * WIDTH, LETTERS)

    def forward(self, letters, wanted):
        memory, _ = self.encoder(self.letter(letters))
        return self.score(self.decoder(memory, wanted))


old = torch.randint(0, LETTERS, (1600, LENGTH), device=device)
new = (old + old.roll(1, 1)) % LETTERS
model = Speller().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
for epoch in range(3):
    for chosen in torch.randperm(len(old), device=device).split(32):
        scores = model(old[chosen], new[chosen])
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), new[chosen].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.4f}")
