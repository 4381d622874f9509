"""Intent classification with a deep, narrow transformer."""

import argparse
import math

import torch
from torch import nn

VOCAB, LENGTH = 2000, 24


class IntentClassifier(nn.Module):
    def __init__(self, intents, hidden, layers):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, hidden)
        self.places = nn.Parameter(0.02 * torch.randn(LENGTH, hidden))
        layer = nn.TransformerEncoderLayer(
            hidden, 4, 4 * hidden, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, intents)

    def forward(self, ids):
        x = self.encoder(self.tokens(ids) + self.places)
        return self.head(self.norm(x).mean(dim=1))


def make_utterances(count, intents, seed):
    """Some words of each utterance come from a list that belongs to its intent."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, intents, (count,), generator=generator)
    words = torch.randint(0, VOCAB, (count, LENGTH), generator=generator)
    telling = labels[:, None] * 20 + torch.randint(0, 20, (count, LENGTH), generator=generator)
    return torch.where(torch.rand(count, LENGTH, generator=generator) < 0.25, telling, words), labels


def grouped_parameters(model, weight_decay):
    """No decay for biases and norms."""
    decay = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    return [{"params": decay, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]


@torch.no_grad()
def evaluate(model, ids, labels):
    model.eval()
    right = sum((model(i).argmax(dim=1) == y).sum().item() for i, y in zip(ids.split(256), labels.split(256)))
    model.train()
    return right / len(labels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=10)
    parser.add_argument("--intents", type=int, default=30)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--weight_decay", type=float, default=0.01)
    args = parser.parse_args()
    torch.manual_seed(470)
    ids, labels = make_utterances(1024, args.intents, 471)
    test_ids, test_labels = make_utterances(256, args.intents, 472)
    model = IntentClassifier(args.intents, args.hidden, args.layers)
    groups = grouped_parameters(model, args.weight_decay)
    optimizer = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.999), fused=True)
    total = args.epochs * math.ceil(len(ids) / args.batch_size)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / total)
    loss_fn = nn.CrossEntropyLoss()
    for epoch in range(args.epochs):
        for rows in torch.randperm(len(ids)).split(args.batch_size):
            loss = loss_fn(model(ids[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}, accuracy {evaluate(model, test_ids, test_labels):.3f}")


if __name__ == "__main__":
    main()
