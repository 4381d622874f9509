"""A sentence classifier on token sequences of different lengths."""

import torch
from torch import nn
from torch.utils.data import DataLoader

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

sentences = []
for length in torch.randint(30, 160, (3200,)).tolist():
    sentences.append((torch.randint(1, 5000, (length,)), length % 4))


def collate(samples):
    longest = max(len(tokens) for tokens, _ in samples)
    batch = torch.zeros(len(samples), longest, dtype=torch.long)
    for row, (tokens, _) in enumerate(samples):
        for column, token in enumerate(tokens):
            batch[row, column] = token
    return batch, torch.tensor([label for _, label in samples])


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.EmbeddingBag(5000, 128, mode="mean", padding_idx=0)
        self.layers = nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 4))

    def forward(self, tokens):
        return self.layers(self.embedding(tokens))


loader = DataLoader(sentences, batch_size=16, shuffle=True, collate_fn=collate)
model = Classifier().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step, (tokens, labels) in enumerate(loader):
    logits = model(tokens.to(device))
    loss = nn.functional.cross_entropy(logits, labels.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 120:
        break

print(f"loss {loss.item():.3f}")
