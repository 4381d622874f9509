"""Routing of legal notices to departments: a small tokenizer and a Transformer encoder, trained from scratch."""

import argparse
import random
import tempfile
from collections import Counter
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DEPARTMENTS = ("tenancy", "labour", "tax", "traffic", "trade")
PAD, UNKNOWN = 0, 1


def draft_notices(count, seed):
    """Texts of 12 to 90 words; every department has words that it uses more often."""
    rng = random.Random(seed)
    common = [f"word{i}" for i in range(900)]
    special = {name: [f"{name}{i}" for i in range(40)] for name in DEPARTMENTS}
    notices = []
    for _ in range(count):
        label = rng.randrange(len(DEPARTMENTS))
        length = min(90, 12 + int(rng.expovariate(1 / 22)))
        own = special[DEPARTMENTS[label]]
        words = [rng.choice(own) if rng.random() < 0.12 else rng.choice(common) for _ in range(length)]
        notices.append((" ".join(words), label))
    return notices


class Tokenizer:
    def __init__(self, texts, size):
        counts = Counter(word for text in texts for word in text.lower().split())
        self.index = {word: i + 2 for i, (word, _) in enumerate(counts.most_common(size - 2))}
        self.size = len(self.index) + 2

    def encode(self, text):
        return [self.index.get(word, UNKNOWN) for word in text.lower().split()]

    def __call__(self, texts, padding, max_length):
        rows = [self.encode(text)[:max_length] for text in texts]
        width = max_length if padding == "max_length" else max(map(len, rows))
        return torch.tensor([row + [PAD] * (width - len(row)) for row in rows])


class NoticeDataset(Dataset):
    def __init__(self, notices):
        self.notices = notices

    def __len__(self):
        return len(self.notices)

    def __getitem__(self, index):
        return self.notices[index]


class Collator:
    def __init__(self, tokenizer, max_length):
        self.tokenizer, self.max_length = tokenizer, max_length

    def __call__(self, samples):
        texts, labels = zip(*samples)
        tokens = self.tokenizer(texts, padding="max_length", max_length=self.max_length)
        return tokens, torch.tensor(labels)


class NoticeClassifier(nn.Module):
    def __init__(self, vocabulary, classes, max_length, dim=64, heads=4, layers=2, dropout=0.1):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, dim, padding_idx=PAD)
        self.positions = nn.Parameter(torch.randn(max_length, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(dim, heads, 4 * dim, dropout, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.classifier = nn.Sequential(nn.Linear(dim, dim), nn.Tanh(), nn.Dropout(dropout), nn.Linear(dim, classes))

    def forward(self, tokens):
        padding = tokens == PAD
        x = self.tokens(tokens) + self.positions[: tokens.size(1)]
        x = self.encoder(x, src_key_padding_mask=padding)
        keep = (~padding).unsqueeze(-1)
        return self.classifier((x * keep).sum(1) / keep.sum(1))


class Trainer:
    def __init__(self, model, args, total_steps):
        self.model, self.args = model, args
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
        warmup = max(1, total_steps // 10)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda s: min((s + 1) / warmup, (total_steps - s) / (total_steps - warmup))
        )
        self.criterion = nn.CrossEntropyLoss()
        self.step = 0

    def train_epoch(self, loader):
        self.model.train()
        for tokens, labels in loader:
            loss = self.criterion(self.model(tokens), labels)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.scheduler.step()
            self.step += 1
            if self.step % self.args.log_steps == 0:
                print(f"step {self.step} loss {loss.item():.4f} lr {self.scheduler.get_last_lr()[0]:.2e}")

    @torch.inference_mode()
    def evaluate(self, loader):
        self.model.eval()
        right = total = 0
        for tokens, labels in loader:
            right += (self.model(tokens).argmax(-1) == labels).sum().item()
            total += len(labels)
        return right / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--max_length", type=int, default=128)
    parser.add_argument("--vocabulary", type=int, default=1000)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--log_steps", type=int, default=25)
    args = parser.parse_args()
    torch.manual_seed(11)

    train, valid = draft_notices(1440, seed=0), draft_notices(240, seed=1)
    tokenizer = Tokenizer([text for text, _ in train], args.vocabulary)
    collate = Collator(tokenizer, args.max_length)
    loader = DataLoader(NoticeDataset(train), args.batch_size, shuffle=True, collate_fn=collate)
    valid_loader = DataLoader(NoticeDataset(valid), 2 * args.batch_size, collate_fn=collate)

    model = NoticeClassifier(tokenizer.size, len(DEPARTMENTS), args.max_length)
    trainer = Trainer(model, args, args.epochs * len(loader))
    with tempfile.TemporaryDirectory() as output:
        for epoch in range(args.epochs):
            trainer.train_epoch(loader)
            print(f"epoch {epoch} accuracy {trainer.evaluate(valid_loader):.3f}")
            torch.save(model.state_dict(), Path(output) / f"epoch{epoch}.pt")


if __name__ == "__main__":
    main()
