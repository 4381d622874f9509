"""Reads the digits of water meters from line pictures with a convolutional recurrent network and CTC."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

ALPHABET = "0123456789.-"
BLANK = len(ALPHABET)


class MeterLines(Dataset):
    """Lines of glyphs, each a fixed random pattern, with noise and uneven light."""

    def __init__(self, count, longest, seed, height=16, glyph=6):
        self.longest, self.height, self.glyph = longest, height, glyph
        shapes = torch.Generator().manual_seed(99)
        self.glyphs = (torch.rand(len(ALPHABET), height, glyph, generator=shapes) > 0.5).float()
        generator = torch.Generator().manual_seed(seed)
        self.lengths = torch.randint(longest // 2, longest + 1, (count,), generator=generator)
        self.texts = torch.randint(len(ALPHABET), (count, longest), generator=generator)

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        length = int(self.lengths[index])
        line = torch.zeros(self.height, self.longest * self.glyph)
        line[:, : length * self.glyph] = self.glyphs[self.texts[index, :length]].transpose(0, 1).flatten(1)
        light = torch.linspace(0.7, 1.0, line.shape[1])
        picture = line * light + 0.2 * torch.randn(line.shape)
        return picture.unsqueeze(0), self.texts[index], length


class LineReader(nn.Module):
    def __init__(self, height=16, width=12, hidden=32):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.rnn = nn.GRU(width * height // 4, hidden, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * hidden, len(ALPHABET) + 1)

    def forward(self, pictures):
        features = self.conv(pictures).permute(0, 3, 1, 2).flatten(2)
        return F.log_softmax(self.head(self.rnn(features)[0]), dim=2)


def decode(log_probabilities):
    """The most likely symbol at each place, repeats and blanks left out."""
    texts = []
    for best in log_probabilities.argmax(dim=2).tolist():
        kept = [a for a, b in zip(best, [BLANK, *best]) if a not in (b, BLANK)]
        texts.append(kept)
    return texts


def edit_distance(first, second):
    previous = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        current = [i]
        for j, b in enumerate(second, 1):
            current.append(min(previous[j] + 1, current[j - 1] + 1, previous[j - 1] + (a != b)))
        previous = current
    return previous[-1]


class CharacterErrorRate:
    def __init__(self):
        self.reset()

    def reset(self):
        self.errors, self.characters = 0, 0

    def update(self, log_probabilities, texts, lengths):
        for predicted, text, length in zip(decode(log_probabilities), texts.tolist(), lengths.tolist()):
            self.errors += edit_distance(predicted, text[:length])
            self.characters += length

    def compute(self):
        return self.errors / max(self.characters, 1)


class Experiment:
    def __init__(self, args):
        self.args = args
        torch.manual_seed(args.seed)
        train_set = MeterLines(args.lines, args.longest, args.seed)
        self.train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, drop_last=True)
        self.test_loader = DataLoader(MeterLines(128, args.longest, args.seed + 1), batch_size=64)
        self.model = LineReader()
        self.criterion = nn.CTCLoss(blank=BLANK, zero_infinity=True)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        self.train_cer, self.test_cer = CharacterErrorRate(), CharacterErrorRate()

    def loss(self, log_probabilities, texts, lengths):
        steps = torch.full_like(lengths, log_probabilities.shape[1])
        return self.criterion(log_probabilities.transpose(0, 1), texts, steps, lengths)

    def train_epoch(self, epoch):
        self.train_cer.reset()
        for step, (pictures, texts, lengths) in enumerate(self.train_loader, 1):
            log_probabilities = self.model(pictures)
            loss = self.loss(log_probabilities, texts, lengths)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
            self.optimizer.step()
            if step % self.args.log_every == 0:
                self.train_cer.update(log_probabilities.detach(), texts, lengths)
                print(f"epoch {epoch} step {step}: loss {loss.item():.3f}, CER {self.train_cer.compute():.3f}")
                self.train_cer.reset()

    @torch.no_grad()
    def test(self):
        self.model.eval()
        self.test_cer.reset()
        for pictures, texts, lengths in self.test_loader:
            self.test_cer.update(self.model(pictures), texts, lengths)
        self.model.train()
        return self.test_cer.compute()

    def run(self):
        for epoch in range(self.args.epochs):
            self.train_epoch(epoch)
            print(f"epoch {epoch}: test CER {self.test():.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=2400)
    parser.add_argument("--longest", type=int, default=48)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--log-every", type=int, default=25)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--seed", type=int, default=12)
    Experiment(parser.parse_args()).run()
