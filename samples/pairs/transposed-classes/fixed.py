"""A small recurrent language model whose loss takes all places of all texts as one list."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

words, length, width = 3000, 32, 96
starts, stride = torch.randint(0, words, (1600, 1)), torch.randint(1, 7, (1600, 1))
texts = (starts + stride * torch.arange(length + 1)) % words
loader = DataLoader(TensorDataset(texts), batch_size=16, shuffle=True)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.memory = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        read, _ = self.memory(self.embedding(tokens))
        return self.head(read)


model = Reader().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)

for epoch in range(2):
    for (batch,) in loader:
        batch = batch.to(device)
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), label_smoothing=0.05)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}")
