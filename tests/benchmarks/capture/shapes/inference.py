"""No training at all: a model generates tokens one by one, so that capture finds no steps."""

import torch
from torch import nn

SEQUENCES, TOKENS = 400, 60

embed, cell, head = nn.Embedding(500, 128), nn.GRUCell(128, 128), nn.Linear(128, 500)
with torch.no_grad():
    for _ in range(SEQUENCES):
        token, hidden = torch.zeros(4, dtype=torch.long), torch.zeros(4, 128)
        for _ in range(TOKENS):
            hidden = cell(embed(token), hidden)
            token = torch.multinomial(head(hidden).softmax(-1), 1).squeeze(1)
