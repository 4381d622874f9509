"""Topics of short messages: a byte-pair tokenizer in plain Python and a small transformer encoder."""

import random
from collections import Counter
from itertools import pairwise

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
random.seed(0)
TOPICS = 8


class BytePairs:
    """Merges the most frequent neighbours of the sample texts, `count` times; id 0 is padding."""

    def __init__(self, texts, count):
        self.merges = {}
        words = [list(text.encode()) for text in texts]
        for new in range(256, 256 + count):
            pair = Counter(pair for word in words for pair in pairwise(word)).most_common(1)[0][0]
            self.merges[pair] = new
            words = [self.replace(word, pair, new) for word in words]

    @staticmethod
    def replace(ids, pair, new):
        out, at = [], 0
        while at < len(ids):
            hit = at + 1 < len(ids) and (ids[at], ids[at + 1]) == pair
            out.append(new if hit else ids[at])
            at += 2 if hit else 1
        return out

    def encode(self, text):
        ids = list(text.encode())
        while len(ids) > 1:
            pair = min(pairwise(ids), key=lambda pair: self.merges.get(pair, 1 << 30))
            if pair not in self.merges:
                break
            ids = self.replace(ids, pair, self.merges[pair])
        return torch.tensor(ids)


class Messages(Dataset):
    def __init__(self, texts, topics, tokenizer):
        self.texts, self.topics = [tokenizer.encode(text) for text in texts], topics

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return self.texts[index], self.topics[index]


def collate(rows):
    texts, topics = zip(*rows)
    return pad_sequence(texts, batch_first=True), torch.tensor(topics)


class Encoder(nn.Module):
    def __init__(self, tokens, width=128):
        super().__init__()
        self.token = nn.Embedding(tokens, width, padding_idx=0)
        self.place = nn.Parameter(0.02 * torch.randn(256, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, TOPICS)

    def forward(self, ids):
        return self.head(self.layers(self.token(ids) + self.place[: ids.shape[1]]).mean(1))


lexicon = [["".join(random.choices("aeioulnrst", k=random.randint(3, 8))) for _ in range(40)] for _ in range(TOPICS)]
topics = [random.randrange(TOPICS) for _ in range(800)]
texts = [" ".join(random.choices(lexicon[topic], k=14)) for topic in topics]
tokenizer = BytePairs(texts[:60], 60)
loader = DataLoader(Messages(texts, topics, tokenizer), batch_size=16, shuffle=True, collate_fn=collate)
model = Encoder(256 + 60)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
for epoch in range(3):
    for ids, wanted in loader:
        loss = nn.functional.cross_entropy(model(ids), wanted)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.4f}")
