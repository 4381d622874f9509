"""Sentiment of reviews: words to ids, ids to a convolutional classifier with attention pooling."""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

random.seed(0)
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
WORDS = [f"word{i}" for i in range(3000)]
VOCABULARY = {word: i + 1 for i, word in enumerate(WORDS)}
MAX_LENGTH = 320


def encode(text, max_length=MAX_LENGTH):
    return [VOCABULARY[word] for word in text.split()][:max_length]


class Reviews(Dataset):
    def __init__(self, count):
        texts = [" ".join(random.choices(WORDS, k=random.randint(30, 120))) for _ in range(count)]
        self.ids = [torch.tensor(encode(text)) for text in texts]
        self.labels = torch.randint(0, 2, (count,))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index], "label": self.labels[index]}


def collate(samples):
    ids = nn.utils.rnn.pad_sequence([s["input_ids"] for s in samples], batch_first=True)
    return {"input_ids": ids, "label": torch.stack([s["label"] for s in samples])}


class Classifier(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embedding = nn.Embedding(len(WORDS) + 1, width, padding_idx=0)
        self.convs = nn.ModuleList([nn.Conv1d(width, width, 5, padding=2) for _ in range(2)])
        self.attend, self.out = nn.Linear(width, 1), nn.Linear(width, 2)

    def forward(self, ids):
        x = self.embedding(ids).transpose(1, 2)
        for conv in self.convs:
            x = torch.relu(conv(x))
        x = x.transpose(1, 2)
        weights = self.attend(x).squeeze(-1).masked_fill(ids == 0, -1e4).softmax(-1)
        return self.out((weights[..., None] * x).sum(1))


loader = DataLoader(Reviews(1600), batch_size=16, shuffle=True, collate_fn=collate)
model = Classifier().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step, batch in enumerate(loader):
    batch = {key: value.to(device) for key, value in batch.items()}
    loss = nn.functional.cross_entropy(model(batch["input_ids"]), batch["label"])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, round(loss.item(), 4))
