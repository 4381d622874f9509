"""Which section of a newspaper a headline is from: a data module tokenizes and pads, averaged word vectors classify."""

import random
import re

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

TOKEN = re.compile(r"[a-z]+(?:'[a-z]+)?|\d+|[^\w\s]")


def write_headlines(count, seed):
    """Texts with punctuation and numbers, and their sections; every section has favourite words."""
    draw = random.Random(seed)
    syllables = ["ka", "ro", "mi", "te", "lu", "so", "ne", "pa", "vi", "do"]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(1500)]
    texts, sections = [], []
    for _ in range(count):
        section = draw.randrange(8)
        picked = draw.choices(words, k=24) + draw.choices(words[section * 40 : section * 40 + 40], k=8)
        draw.shuffle(picked)
        picked[5], picked[11] = f"{picked[5].title()}'s", f"{draw.randrange(2000)},"
        texts.append(" ".join(picked) + draw.choice([".", "!", "?"]))
        sections.append(section)
    return texts, sections


class Tokenizer:
    def __init__(self, texts):
        seen = sorted({token for text in texts for token in self.split(text)})
        self.ids = {token: number for number, token in enumerate(seen, 2)}

    def split(self, text):
        return TOKEN.findall(text.lower())

    def __call__(self, text):
        return [self.ids.get(token, 1) for token in self.split(text)]


class Headlines(Dataset):
    def __init__(self, texts, sections, tokenizer):
        self.tokens, self.sections = [torch.tensor(tokenizer(text)) for text in texts], sections

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return self.tokens[index], self.sections[index]


class NewsData:
    def __init__(self, batch_size):
        self.batch_size = batch_size
        texts, sections = write_headlines(7680, 0)
        self.tokenizer = Tokenizer(texts)
        self.train = Headlines(texts, sections, self.tokenizer)

    def collate(self, samples):
        tokens, sections = zip(*samples)
        return nn.utils.rnn.pad_sequence(tokens, batch_first=True), torch.tensor(sections)

    def train_loader(self):
        return DataLoader(self.train, self.batch_size, shuffle=True, collate_fn=self.collate, drop_last=True)


class Classifier(nn.Module):
    def __init__(self, vocabulary, width=96, sections=8):
        super().__init__()
        self.vectors = nn.Embedding(vocabulary, width, padding_idx=0)
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, sections))

    def forward(self, tokens):
        count = (tokens > 0).sum(1, keepdim=True)
        return self.head(self.vectors(tokens).sum(1) / count)


def main():
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = NewsData(batch_size=128)
    model = Classifier(len(data.tokenizer.ids) + 2).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, fused=True)
    for epoch in range(4):
        loss_sum, right, seen = 0.0, 0, 0
        for tokens, sections in data.train_loader():
            tokens, sections = tokens.to(device), sections.to(device)
            scores = model(tokens)
            loss = F.cross_entropy(scores, sections)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss_sum += loss.detach()
            right += (scores.detach().argmax(1) == sections).sum()
            seen += len(sections)
        print(f"epoch {epoch}: loss {float(loss_sum) * 128 / seen:.3f}, {int(right) / seen:.3f} right")


if __name__ == "__main__":
    main()
