"""Sentiment of reviews; the words of each review become numbers through a vocabulary."""

import random
import re

import torch
from torch import nn
from torch.utils.data import DataLoader

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
random.seed(0)

words = ["".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(3000)]
vocabulary = {word: number + 1 for number, word in enumerate(words)}
reviews = [" ".join(random.choices(words, k=200)).capitalize() + "." for _ in range(1600)]
labels = [len(set(review)) % 2 for review in reviews]


def tokenize(review):
    return torch.tensor([vocabulary.get(word, 0) for word in re.findall(r"[a-z]+", review.lower())])


class Sentiment(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.EmbeddingBag(3001, 64)
        self.layers = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 2))

    def forward(self, tokens):
        return self.layers(self.embedding(tokens))


tokenized = [tokenize(review) for review in reviews]
loader = DataLoader(list(zip(tokenized, labels, strict=True)), batch_size=64, shuffle=True)
model = Sentiment().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(8):
    for tokens, wanted in loader:
        loss = nn.functional.cross_entropy(model(tokens.to(device)), wanted.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}")
