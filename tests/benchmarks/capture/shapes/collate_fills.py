"""A collate function that fills its batch element by element: 16,000 indexed writes a batch, in the loop's process."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LENGTH, BATCH, STEPS = 250, 64, 60


class Sequences(Dataset):
    def __len__(self):
        return BATCH * STEPS

    def __getitem__(self, index):
        return [(index * 31 + place) % 97 for place in range(LENGTH)], index % 10


def collate(samples):
    tokens = torch.zeros(len(samples), LENGTH, dtype=torch.long)
    labels = torch.zeros(len(samples), dtype=torch.long)
    for row, (sequence, label) in enumerate(samples):
        for place, token in enumerate(sequence):
            tokens[row, place] = token
        labels[row] = label
    return tokens, labels


model = nn.Sequential(nn.Embedding(97, 32), nn.Flatten(), nn.Linear(32 * LENGTH, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for tokens, labels in DataLoader(Sequences(), batch_size=BATCH, collate_fn=collate):
    loss = nn.functional.cross_entropy(model(tokens), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
