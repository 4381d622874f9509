"""Learns word vectors from pairs of neighbouring words."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

vocabulary, width = 10_000, 64
words = torch.randint(0, vocabulary, (12_800,))
neighbours = torch.randint(0, 50, (12_800,))
loader = DataLoader(TensorDataset(words, neighbours), batch_size=128, shuffle=True)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.vectors = nn.Linear(vocabulary, width, bias=False)
        self.head = nn.Linear(width, 50)

    def forward(self, words):
        return self.head(self.vectors(nn.functional.one_hot(words, vocabulary).float()))


model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(2):
    for centre, neighbour in loader:
        loss = nn.functional.cross_entropy(model(centre.to(device)), neighbour.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}")
