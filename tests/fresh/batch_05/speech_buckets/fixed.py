"""Emotions from speech of very different length: convolutions and attentive pooling over mel frames."""

import argparse

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset


class Utterances(Dataset):
    """Log-mel frames; most are short, a few are long. The emotion shows in how the energy sways."""

    def __init__(self, count, mels, longest, seed):
        generator = torch.Generator().manual_seed(seed)
        share = torch.rand(count, generator=generator).pow(3)
        self.lengths = (30 + share * (longest - 30)).long().tolist()
        self.labels = torch.randint(0, 6, (count,), generator=generator).tolist()
        self.frames = []
        for length, label in zip(self.lengths, self.labels):
            time = torch.arange(length)
            sway = torch.sin(time * 0.1 * (1 + label))[:, None] * torch.linspace(1, 0.2, mels)
            self.frames.append(sway + torch.randn(length, mels, generator=generator))

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, index):
        return self.frames[index], self.labels[index]


class LengthBatches:
    """Batches of a fixed size for one epoch after another. Pools of `pool` batches are sorted by length."""

    def __init__(self, lengths, batch_size, pool):
        self.lengths, self.batch_size, self.pool = lengths, batch_size, pool

    def __len__(self):
        return len(self.lengths) // self.batch_size

    def __iter__(self):
        order = torch.randperm(len(self.lengths))[: len(self) * self.batch_size]
        batches = []
        for part in order.split(self.pool * self.batch_size):
            rows = sorted(part.tolist(), key=lambda row: self.lengths[row])
            batches += [rows[start : start + self.batch_size] for start in range(0, len(rows), self.batch_size)]
        for position in torch.randperm(len(batches)).tolist():
            yield batches[position]


def collate(batch):
    frames, labels = zip(*batch)
    lengths = torch.tensor([len(frame) for frame in frames])
    return pad_sequence(frames, batch_first=True), lengths, torch.tensor(labels)


class AttentivePooling(nn.Module):
    def __init__(self, channels, hidden=64):
        super().__init__()
        self.score = nn.Sequential(nn.Conv1d(channels, hidden, 1), nn.Tanh(), nn.Conv1d(hidden, 1, 1))

    def forward(self, x, mask):
        weights = self.score(x).masked_fill(~mask, -1e9).softmax(dim=2)
        mean = (weights * x).sum(dim=2)
        variance = (weights * x.square()).sum(dim=2) - mean.square()
        return torch.cat((mean, variance.clamp(min=1e-5).sqrt()), dim=1)


class EmotionNet(nn.Module):
    def __init__(self, mels, channels=80, classes=6):
        super().__init__()
        layers, inputs = [], mels
        for dilation in (1, 2, 3):
            layers += [nn.Conv1d(inputs, channels, 5, padding=2 * dilation, dilation=dilation), nn.ReLU()]
            inputs = channels
        self.layers = nn.Sequential(*layers)
        self.pooling = AttentivePooling(channels)
        self.head = nn.Sequential(nn.LayerNorm(2 * channels), nn.Linear(2 * channels, classes))

    def forward(self, frames, lengths):
        mask = (torch.arange(frames.shape[1]) < lengths[:, None])[:, None]
        x = frames.transpose(1, 2)
        for layer in self.layers:
            x = layer(x)
            if isinstance(layer, nn.ReLU):
                x = x * mask
        return self.head(self.pooling(x, mask))


def main(args):
    torch.manual_seed(args.seed)
    data = Utterances(args.utterances, args.mels, args.longest, args.seed)
    batches = LengthBatches(data.lengths, args.batch_size, args.pool)
    loader = DataLoader(data, batch_sampler=batches, collate_fn=collate)
    model = EmotionNet(args.mels)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(args.epochs):
        total, right = torch.zeros(()), torch.zeros((), dtype=torch.long)
        for frames, lengths, labels in loader:
            logits = model(frames, lengths)
            loss = criterion(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
            right += (logits.detach().argmax(dim=1) == labels).sum()
        share = right.item() / (len(loader) * args.batch_size)
        print(f"epoch {epoch}: loss {total.item() / len(loader):.4f} accuracy {share:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--utterances", type=int, default=640)
    parser.add_argument("--mels", type=int, default=40)
    parser.add_argument("--longest", type=int, default=400)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--pool", type=int, default=40)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1399)
    main(parser.parse_args())
