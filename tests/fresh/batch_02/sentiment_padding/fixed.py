"""Sentence classification with a small transformer encoder."""

import argparse
import random
import tempfile

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

MAX_LENGTH, PAD = 128, 0


class Reviews(Dataset):
    """Token ids; words below 500 are positive ones. Lengths are those of short sentences, a few are long."""

    def __init__(self, count, seed):
        rng = random.Random(seed)
        self.rows = []
        for _ in range(count):
            length = min(100, 6 + int(rng.expovariate(1 / 14)))
            label = rng.randrange(2)
            share = 0.65 if label else 0.35
            words = [rng.randrange(1, 500) if rng.random() < share else rng.randrange(500, 1000) for _ in range(length)]
            self.rows.append((words, label))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    width = max(len(words) for words, _ in rows)
    ids = torch.full((len(rows), width), PAD)
    for i, (words, _) in enumerate(rows):
        ids[i, : len(words)] = torch.tensor(words)
    return {"input_ids": ids, "attention_mask": ids != PAD}, torch.tensor([label for _, label in rows])


class Classifier(nn.Module):
    def __init__(self, vocab=1000, dim=64, heads=4, layers=2):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, dim, PAD), nn.Embedding(MAX_LENGTH, dim)
        layer = nn.TransformerEncoderLayer(dim, heads, dim * 2, 0.1, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Linear(dim, 2)

    def forward(self, input_ids, attention_mask):
        x = self.tokens(input_ids) + self.positions(torch.arange(input_ids.shape[1]))
        x = self.encoder(x, src_key_padding_mask=~attention_mask)
        mask = attention_mask.unsqueeze(-1)
        return self.out((x * mask).sum(1) / mask.sum(1))


def evaluate(model, loader):
    model.eval()
    correct = 0
    with torch.no_grad():
        for inputs, labels in loader:
            correct += (model(**inputs).argmax(1) == labels).sum().item()
    model.train()
    return correct / len(loader.dataset)


def training_step(model, loss_fn, inputs, labels):
    return loss_fn(model(**inputs), labels)


def train(args):
    torch.manual_seed(args.seed)
    train_loader = DataLoader(Reviews(args.examples, 1), args.batch, shuffle=True, collate_fn=collate)
    eval_loader = DataLoader(Reviews(200, 2), 50, collate_fn=collate)
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    total = args.epochs * len(train_loader)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1, (s + 1) / 20) * (1 - s / (total + 1)))
    loss_fn, step = nn.CrossEntropyLoss(), 0
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(args.epochs):
            for inputs, labels in train_loader:
                loss = training_step(model, loss_fn, inputs, labels)
                loss.backward()
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                step += 1
                if step % args.logging_interval_step == 0:
                    print(f"Step {step}: loss {loss.item():.4f}")
            print(f"Epoch {epoch} eval accuracy {evaluate(model, eval_loader):.3f}")
            torch.save(model.state_dict(), f"{folder}/last_model.bin")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--examples", type=int, default=1200)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--logging-interval-step", type=int, default=50)
    parser.add_argument("--seed", type=int, default=786)
    train(parser.parse_args())
