"""Support tickets to teams: texts are tokenized once, batches hold tickets of like length, a trainer with callbacks."""

import random
import re
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

WORD = re.compile(r"\w+")


@dataclass
class Arguments:
    epochs: int = 2
    batch: int = 64
    width: int = 128
    heads: int = 4
    depth: int = 1
    longest: int = 40
    teams: int = 6
    lr: float = 1e-3


def write_tickets(count, teams, seed):
    """Texts of 8 to 40 words, and the team whose words are frequent in them."""
    draw, texts, wanted = random.Random(seed), [], []
    for _ in range(count):
        team = draw.randrange(teams)
        words = [draw.randrange(1200) if draw.random() < 0.7 else 200 * team + draw.randrange(60) for _ in range(40)]
        texts.append(" ".join(f"w{word}" for word in words[: draw.randint(8, 40)]))
        wanted.append(team)
    return texts, wanted


class Tickets:
    """Token ids of every ticket, made when the data is read; groups of like length share a batch."""

    def __init__(self, texts, teams, vocabulary, size):
        rows = [torch.tensor([vocabulary.get(word, 1) for word in WORD.findall(text)]) for text in texts]
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        self.batches = []
        for start in range(0, len(order), size):
            chosen = order[start : start + size]
            ids = nn.utils.rnn.pad_sequence([rows[i] for i in chosen], batch_first=True)
            self.batches.append({"input_ids": ids, "labels": torch.tensor([teams[i] for i in chosen])})

    def epoch(self, shuffle):
        return random.sample(self.batches, len(self.batches)) if shuffle else self.batches


class Router(nn.Module):
    def __init__(self, vocabulary, a):
        super().__init__()
        self.words = nn.Embedding(vocabulary, a.width, padding_idx=0)
        self.places = nn.Embedding(a.longest, a.width)
        layer = nn.TransformerEncoderLayer(a.width, a.heads, 2 * a.width, 0.0, "gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, a.depth, enable_nested_tensor=False)
        self.head = nn.Linear(a.width, a.teams)

    def forward(self, input_ids, labels):
        with torch.autocast(input_ids.device.type, dtype=torch.bfloat16):
            hidden = self.words(input_ids) + self.places.weight[: input_ids.shape[1]]
            logits = self.head(self.encoder(hidden).mean(1)).float()
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


class Report:
    """Sums on the device, read once in an epoch."""

    def __init__(self):
        self.loss, self.right, self.seen = 0.0, 0, 0

    def on_batch(self, out, batch):
        self.loss += out["loss"].detach() * len(batch["labels"])
        self.right += (out["logits"].detach().argmax(1) == batch["labels"]).sum()
        self.seen += len(batch["labels"])

    def __str__(self):
        return f"loss {float(self.loss) / self.seen:.3f}, {int(self.right) / self.seen:.3f} right"


class Trainer:
    def __init__(self, model, a, device):
        self.model, self.device = model.to(device), device
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=a.lr, fused=True)

    def batches(self, tickets, shuffle):
        for batch in tickets.epoch(shuffle):
            yield {name: column.to(self.device) for name, column in batch.items()}

    def train_epoch(self, tickets):
        self.model.train()
        report = Report()
        for batch in self.batches(tickets, shuffle=True):
            out = self.model(**batch)
            self.optimizer.zero_grad()
            out["loss"].backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            report.on_batch(out, batch)
        return report

    @torch.no_grad()
    def validate(self, tickets):
        self.model.eval()
        report = Report()
        for batch in self.batches(tickets, shuffle=False):
            report.on_batch(self.model(**batch), batch)
        return report


def main(a):
    torch.manual_seed(0)
    random.seed(0)
    texts, teams = write_tickets(2560, a.teams, 0)
    vocabulary = {word: number for number, word in enumerate(sorted({w for t in texts for w in WORD.findall(t)}), 2)}
    train = Tickets(texts, teams, vocabulary, a.batch)
    valid = Tickets(*write_tickets(256, a.teams, 1), vocabulary, a.batch)
    trainer = Trainer(Router(len(vocabulary) + 2, a), a, "cuda" if torch.cuda.is_available() else "cpu")
    for epoch in range(a.epochs):
        print(f"epoch {epoch}: {trainer.train_epoch(train)}; of new ones: {trainer.validate(valid)}")


if __name__ == "__main__":
    main(Arguments())
