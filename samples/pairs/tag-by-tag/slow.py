"""Names and places in sentences: a recurrent tagger whose last layer is a conditional random field."""

import random

import torch
from torch import nn

torch.manual_seed(0)
random.seed(0)
WORDS, START, STOP = 800, 9, 10
TAGS = 11  # nine of them are real


class RecurrentCRF(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.word = nn.Embedding(WORDS, width)
        self.lstm = nn.LSTM(width, width, bidirectional=True, batch_first=True)
        self.score = nn.Linear(2 * width, TAGS)
        self.transitions = nn.Parameter(torch.randn(TAGS, TAGS))  # [to, from]
        with torch.no_grad():
            self.transitions[START] = self.transitions[:, STOP] = -10000.0

    def emissions(self, words):
        return self.score(self.lstm(self.word(words)[None])[0][0])

    def log_partition(self, scores):
        """Log of the sum over all sequences of tags."""
        alpha = torch.full((TAGS,), -10000.0)
        alpha[START] = 0.0
        for score in scores:
            following = []
            for tag in range(TAGS):
                paths = alpha + self.transitions[tag] + score[tag]
                following.append(torch.logsumexp(paths, 0))
            alpha = torch.stack(following)
        return torch.logsumexp(alpha + self.transitions[STOP], 0)

    def path_score(self, scores, tags):
        start, stop = torch.tensor([START]), torch.tensor([STOP])
        steps = self.transitions[torch.cat([tags, stop]), torch.cat([start, tags])]
        return steps.sum() + scores[torch.arange(len(tags)), tags].sum()

    def loss(self, words, tags):
        scores = self.emissions(words)
        return self.log_partition(scores) - self.path_score(scores, tags)


def sentence():
    """Words whose tag depends on the word and on whether the word before was even."""
    words = torch.randint(0, WORDS, (random.randint(8, 16),))
    return words, (words + words.roll(1) % 2) % 9


model = RecurrentCRF()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
total = 0.0
for step in range(1, 401):
    loss = model.loss(*sentence())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += loss.detach()
    if step % 100 == 0:
        print(f"sentence {step}: mean loss {total.item() / 100:.3f}")
        total = 0.0
