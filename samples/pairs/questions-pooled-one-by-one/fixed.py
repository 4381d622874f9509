"""Whether two questions ask the same: a Siamese encoder over sentences of different length, mean and maximum pooled."""

import random
import sys

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY, LONGEST = 3000, 36


def questions(count, seed):
    """Pairs of token lists and whether they mean the same: a paraphrase keeps most words, in another order."""
    draw, pairs = random.Random(seed), []
    for _ in range(count):
        first = [draw.randrange(1, VOCABULARY) for _ in range(draw.randint(6, LONGEST))]
        same = draw.random() < 0.5
        words = first if same else [draw.randrange(1, VOCABULARY) for _ in first]
        second = draw.sample(words, draw.randint(max(4, len(words) - 4), len(words)))
        pairs.append((torch.tensor(first), torch.tensor(second), float(same)))
    return pairs


def batches(pairs, size, shuffle):
    """Padded token tensors with their lengths, of both questions together, and the labels."""
    order = list(range(len(pairs)))
    if shuffle:
        random.shuffle(order)
    for start in range(0, len(order) - size + 1, size):
        first, second, same = zip(*(pairs[i] for i in order[start : start + size]))
        both = [*first, *second]
        yield nn.utils.rnn.pad_sequence(both, True), torch.tensor([len(q) for q in both]), torch.tensor(same)


class Encoder(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width, padding_idx=0)
        self.mix = nn.Conv1d(width, width, 3, padding=1)
        self.out = nn.Linear(2 * width, width)

    def pool(self, x, lengths):
        real = (torch.arange(x.shape[1], device=x.device) < lengths[:, None])[:, :, None]
        mean = (x * real).sum(1) / lengths[:, None]
        return torch.cat([mean, x.masked_fill(~real, float("-inf")).amax(1)], 1)

    def forward(self, tokens, lengths):
        x = self.embedding(tokens)
        with torch.autocast(tokens.device.type, dtype=torch.bfloat16):
            x = x + F.gelu(self.mix(x.transpose(1, 2)).transpose(1, 2).float())
        return F.normalize(self.out(self.pool(x, lengths)), dim=1)


def scores(model, tokens, lengths, device):
    first, second = model(tokens.to(device), lengths.to(device)).chunk(2)
    return 8 * (first * second).sum(1) - 4


@torch.no_grad()
def accuracy(model, pairs, device):
    hits = [((scores(model, t, n, device) > 0) == same.to(device).bool()) for t, n, same in batches(pairs, 128, False)]
    return torch.cat(hits).float().mean().item()


def main():
    torch.manual_seed(0)
    random.seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    train, valid = questions(3200, 0), questions(256, 1)
    model = Encoder().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    for epoch in range(3):
        running = torch.zeros((), device=device)
        for done, (tokens, lengths, same) in enumerate(batches(train, 64, True), 1):
            loss = F.binary_cross_entropy_with_logits(scores(model, tokens, lengths, device), same.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.detach()
            if done % 10 == 0:
                bar = "#" * (done // 5)
                sys.stdout.write(f"\r{epoch} [{bar:<10}] loss {running.item() / done:.3f}")
        print(f"  valid {accuracy(model, valid, device):.3f}")


if __name__ == "__main__":
    main()
