"""Spam filter for short messages: bag of embeddings with a small convolution on top."""

import argparse
import random
import re
from collections import Counter

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

WORD = re.compile(r"[a-z']+|[0-9]+|[!?$%]")
CONSONANTS, VOWELS = "bcdfghjklmnprstvwz", "aeiou"


def make_words(rng, count):
    words = set()
    while len(words) < count:
        words.add("".join(rng.choice(CONSONANTS) + rng.choice(VOWELS) for _ in range(rng.randint(2, 5))))
    return sorted(words)


def make_messages(rng, words, count):
    """Messages of 10 to 40 words; spam takes more of its words from one end of the list."""
    messages = []
    for _ in range(count):
        spam = rng.random() < 0.4
        length = rng.randint(10, 40)
        tokens = [words[min(int(rng.paretovariate(0.5)), len(words)) - 1] for _ in range(length)]
        if spam:
            tokens = [rng.choice(words[-400:]) if rng.random() < 0.15 else token for token in tokens]
        messages.append((" ".join(tokens).capitalize() + rng.choice(["", "!", "!!", "?"]), int(spam)))
    return messages


class Vocabulary:
    def __init__(self, texts, min_count=1, specials=("<pad>", "<unk>")):
        counts = Counter(token for text in texts for token in WORD.findall(text.lower()))
        self.words = list(specials) + [word for word, count in counts.most_common() if count >= min_count]
        self.index = {word: position for position, word in enumerate(self.words)}

    def __len__(self):
        return len(self.words)

    def encode(self, text):
        ids = []
        for token in WORD.findall(text.lower()):
            if token in self.index:
                ids.append(self.index[token])
            else:
                ids.append(1)
        return ids


class MessageDataset(Dataset):
    def __init__(self, messages, vocabulary, word_dropout=0.0):
        self.messages = messages
        self.vocabulary = vocabulary
        self.word_dropout = word_dropout

    def __len__(self):
        return len(self.messages)

    def __getitem__(self, index):
        text, label = self.messages[index]
        ids = torch.tensor(self.vocabulary.encode(text))
        if self.word_dropout:
            ids[torch.rand(len(ids)) < self.word_dropout] = 1
        return ids, label


def collate(batch):
    ids, labels = zip(*batch)
    return pad_sequence(ids, batch_first=True), torch.tensor(labels, dtype=torch.float32)


class SpamNet(nn.Module):
    def __init__(self, vocabulary, dim=64, hidden=96):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, dim, padding_idx=0)
        self.convs = nn.ModuleList(nn.Conv1d(dim, hidden, width, padding=width // 2) for width in (3, 5))
        self.head = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, ids):
        x = self.embedding(ids).transpose(1, 2)
        pooled = [torch.relu(conv(x)).amax(dim=2) for conv in self.convs]
        return self.head(torch.cat(pooled, dim=1)).squeeze(1)


def evaluate(model, loader):
    model.eval()
    true_positive = predicted = actual = 0
    with torch.no_grad():
        for ids, labels in loader:
            spam = model(ids) > 0
            true_positive += (spam & (labels > 0)).sum().item()
            predicted += spam.sum().item()
            actual += labels.sum().item()
    model.train()
    return 2 * true_positive / max(predicted + actual, 1)


def train(args):
    rng = random.Random(args.seed)
    torch.manual_seed(args.seed)
    words = make_words(rng, args.words)
    messages = make_messages(rng, words, args.messages)
    cut = int(0.9 * len(messages))
    vocabulary = Vocabulary(text for text, _ in messages[:cut])
    print(f"{len(vocabulary)} words")
    train_set = MessageDataset(messages[:cut], vocabulary, word_dropout=0.05)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, collate_fn=collate)
    test_loader = DataLoader(MessageDataset(messages[cut:], vocabulary), batch_size=128, collate_fn=collate)
    model = SpamNet(len(vocabulary))
    criterion = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    for epoch in range(1, args.epochs + 1):
        losses = []
        for step, (ids, labels) in enumerate(train_loader):
            loss = criterion(model(ids), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if step % 50 == 0:
                print(f"epoch {epoch} step {step}: loss {sum(losses[-50:]) / len(losses[-50:]):.4f}")
        print(f"epoch {epoch}: F1 {evaluate(model, test_loader):.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=5000)
    parser.add_argument("--words", type=int, default=4000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=3)
    train(parser.parse_args())
