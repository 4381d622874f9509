"""Labels the parts of postal addresses, character by character, with a BiLSTM and a conditional random field."""

import argparse

import torch
import torch.nn as nn

TAGS = ("O", "B-street", "I-street", "B-number", "B-city", "I-city", "B-code", "I-code", "B-country")
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789 ,"


class CRF(nn.Module):
    def __init__(self, tags):
        super().__init__()
        self.start = nn.Parameter(0.1 * torch.randn(tags))
        self.end = nn.Parameter(0.1 * torch.randn(tags))
        self.transitions = nn.Parameter(0.1 * torch.randn(tags, tags))

    def forward(self, emissions, tags, mask):
        """Mean log likelihood of the tags."""
        return (self._score(emissions, tags, mask) - self._normalizer(emissions, mask)).mean()

    def _score(self, emissions, tags, mask):
        picked = emissions.gather(2, tags.unsqueeze(2)).squeeze(2)
        moves = self.transitions[tags[:, :-1], tags[:, 1:]]
        last = tags.gather(1, mask.sum(1, keepdim=True) - 1).squeeze(1)
        return self.start[tags[:, 0]] + (picked * mask).sum(1) + (moves * mask[:, 1:]).sum(1) + self.end[last]

    def _normalizer(self, emissions, mask):
        score = self.start + emissions[:, 0]
        for emission, kept in zip(emissions[:, 1:].unbind(1), mask[:, 1:].unbind(1)):
            longer = torch.logsumexp(score.unsqueeze(2) + self.transitions, dim=1) + emission
            score = torch.where(kept.unsqueeze(1), longer, score)
        return torch.logsumexp(score + self.end, dim=1)

    @torch.no_grad()
    def decode(self, emissions, mask):
        """The best path of each sequence."""
        score, history = self.start + emissions[:, 0], []
        for emission, kept in zip(emissions[:, 1:].unbind(1), mask[:, 1:].unbind(1)):
            best, where = (score.unsqueeze(2) + self.transitions).max(dim=1)
            score = torch.where(kept.unsqueeze(1), best + emission, score)
            history.append(where)
        back = torch.stack(history, dim=1).tolist()
        lasts, lengths = (score + self.end).argmax(1).tolist(), mask.sum(1).tolist()
        paths = []
        for rows, tag, length in zip(back, lasts, lengths):
            path = [tag]
            for row in reversed(rows[: length - 1]):
                path.append(row[path[-1]])
            paths.append(path[::-1])
        return paths


class Tagger(nn.Module):
    def __init__(self, width=48, hidden=64):
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS) + 1, width, padding_idx=0)
        self.lstm = nn.LSTM(width, hidden, batch_first=True, bidirectional=True)
        self.emit = nn.Linear(2 * hidden, len(TAGS))
        self.crf = CRF(len(TAGS))

    def forward(self, letters):
        return self.emit(self.lstm(self.letters(letters))[0])


def make_addresses(count, seed):
    g = torch.Generator().manual_seed(seed)

    def draw(low, high):
        return int(torch.randint(low, high, (), generator=g))

    def word(low, high):
        return "".join(LETTERS[draw(0, 26)] for _ in range(draw(low, high)))

    def number(digits):
        return "".join(LETTERS[26 + draw(0, 10)] for _ in range(digits))

    addresses = []
    for _ in range(count):
        text, tags = "", []
        parts = [("street", word(5, 12)), ("number", number(1)), ("city", word(4, 10)), ("code", number(5))]
        if draw(0, 2):
            parts.append(("country", word(1, 2)))
        for name, value in parts:
            for place, letter in enumerate(value):
                text += letter
                tags.append(TAGS.index(("B-" if place == 0 else "I-") + name))
            text += ", "[draw(0, 2)]
            tags.append(0)
        addresses.append(([LETTERS.index(letter) + 1 for letter in text], tags))
    return addresses


def make_batches(addresses, size):
    """Addresses of like length together, padded once."""
    addresses = sorted(addresses, key=lambda pair: len(pair[0]))
    batches = []
    for start in range(0, len(addresses), size):
        letters, tags = zip(*addresses[start : start + size])
        letters = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in letters], batch_first=True)
        tags = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in tags], batch_first=True)
        batches.append((letters, tags, letters > 0))
    return batches


def count_right(paths, tags):
    """Characters with the right tag, and all characters."""
    pairs = [(path, row[: len(path)]) for path, row in zip(paths, tags.tolist())]
    return sum(a == b for path, row in pairs for a, b in zip(path, row)), sum(len(path) for path, _ in pairs)


@torch.no_grad()
def evaluate(model, batches):
    model.eval()
    right = seen = 0
    for letters, tags, mask in batches:
        paths = model.crf.decode(model(letters), mask)
        hits, all_characters = count_right(paths, tags)
        right, seen = right + hits, seen + all_characters
    return right / seen


def train_epoch(model, batches, optimizer, clip):
    model.train()
    total, right, seen = torch.zeros(()), 0, 0
    for index in torch.randperm(len(batches)).tolist():
        letters, tags, mask = batches[index]
        emissions = model(letters)
        loss = -model.crf(emissions, tags, mask)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        total += loss.detach()
        hits, characters = count_right(model.crf.decode(emissions, mask), tags)
        right, seen = right + hits, seen + characters
    return total.item() / len(batches), right / seen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--addresses", type=int, default=4000)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--clip", type=float, default=5.0)
    args = parser.parse_args()
    torch.manual_seed(12)
    train = make_batches(make_addresses(args.addresses, seed=1), args.batch_size)
    valid = make_batches(make_addresses(args.addresses // 10, seed=2), 4 * args.batch_size)
    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, fused=True)
    for epoch in range(args.epochs):
        loss, accuracy = train_epoch(model, train, optimizer, args.clip)
        print(f"epoch {epoch} loss {loss:.3f} train accuracy {accuracy:.4f} validation {evaluate(model, valid):.4f}")


if __name__ == "__main__":
    main()
