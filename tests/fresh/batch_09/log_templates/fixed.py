"""Anomalies in the logs of a cluster: sessions of log lines, reduced to templates, and a bidirectional GRU."""

import random
import re
from collections import Counter
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    sessions: int = 2400
    lines: int = 30
    batch_size: int = 48
    epochs: int = 4
    width: int = 128
    lr: float = 2e-3


MESSAGES = [
    "dfs.DataNode$PacketResponder: PacketResponder {n} for block blk_{big} terminating",
    "dfs.FSNamesystem: BLOCK* NameSystem.addStoredBlock: blockMap updated: {ip}:50010 is added to blk_{big} size {big}",
    "dfs.DataNode$DataXceiver: Receiving block blk_{big} src: /{ip}:{port} dest: /{ip}:50010",
    "dfs.DataNode$DataXceiver: {ip}:50010 Served block blk_{big} to /{ip} in {n} ms",
    "mapred.JobTracker: Adding task attempt_{n}_r_{big} to tip task_{n}, for tracker 'host{n}:{port}'",
    "ipc.Server: IPC Server handler {n} on {port}, call heartbeat(0x{hex}, {n}) from {ip}:{port}",
]
TROUBLE = [
    "dfs.DataNode$DataXceiver: writeBlock blk_{big} received exception java.io.IOException: Connection reset by peer",
    "dfs.FSNamesystem: BLOCK* ask {ip}:50010 to delete blk_{big} with checksum 0x{hex} mismatch after {n} retries",
]


def write_log(config, seed):
    """Sessions of lines; a session with trouble has a few of the other messages."""
    rng = random.Random(seed)

    def line(messages):
        values = {
            "n": rng.randrange(300), "big": rng.randrange(10**18), "port": rng.randrange(1024, 65536),
            "hex": f"{rng.randrange(16**8):08x}", "ip": ".".join(str(rng.randrange(256)) for _ in range(4)),
        }  # fmt: skip
        stamp = (
            f"08{rng.randrange(1, 13):02d}{rng.randrange(1, 29):02d} {rng.randrange(240000):06d} {rng.randrange(999)}"
        )
        return f"{stamp} {rng.choice(['INFO', 'INFO', 'WARN'])} {rng.choice(messages).format(**values)}"

    sessions, labels = [], []
    for _ in range(config.sessions):
        bad = rng.random() < 0.3
        lines = [line(MESSAGES) for _ in range(rng.randrange(config.lines // 2, config.lines))]
        if bad:
            lines[rng.randrange(len(lines))] = line(TROUBLE)
        sessions.append(lines)
        labels.append(float(bad))
    return sessions, labels


class LogParser:
    """Replaces what varies in a line and splits the rest into words."""

    RULES = [
        (re.compile(r"^\d{6} \d{6} \d+ "), ""),
        (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b"), "<ip>"),
        (re.compile(r"\bblk_-?\d+\b"), "<block>"),
        (re.compile(r"\b(?:attempt|task|job)_\d+(?:_[mr]_\d+)?\b"), "<task>"),
        (re.compile(r"\b0x[0-9a-fA-F]+\b"), "<hex>"),
        (re.compile(r"'[^']*'"), "<name>"),
        (re.compile(r"(?<=[^A-Za-z0-9])\d+(?=[^A-Za-z0-9]|$)"), "<num>"),
        (re.compile(r"([a-z])([A-Z])"), r"\1 \2"),
    ]
    WORD = re.compile(r"<\w+>|[A-Za-z]+")

    def words(self, line):
        for pattern, replacement in self.RULES:
            line = pattern.sub(replacement, line)
        return [word.lower() for word in self.WORD.findall(line)]


class SessionDataset(Dataset):
    """Sessions as word numbers, one long sequence each."""

    def __init__(self, sessions, labels):
        self.sessions, self.labels = sessions, labels
        self.parser = LogParser()
        counts = Counter(word for lines in sessions[:300] for line in lines for word in self.parser.words(line))
        self.vocabulary = {word: i for i, (word, _) in enumerate(counts.most_common(), start=2)}
        self.vocabulary["<pad>"] = 0
        self.encoded = [self.encode(lines) for lines in sessions]

    def encode(self, lines):
        padded = ((self.parser.words(line) + 12 * ["<pad>"])[:12] for line in lines)
        return torch.tensor([self.vocabulary.get(word, 1) for words in padded for word in words])

    def __len__(self):
        return len(self.sessions)

    def __getitem__(self, i):
        return self.encoded[i], self.labels[i]


def collate(samples):
    words, labels = zip(*samples)
    return pad_sequence(words, batch_first=True), torch.tensor(labels)


class AnomalyGRU(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.embed = nn.Embedding(words, 32, padding_idx=0)
        self.squeeze = nn.Conv1d(32, width, 12, stride=12)
        self.gru = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, 1)

    def forward(self, words):
        lines = torch.relu(self.squeeze(self.embed(words).transpose(1, 2))).transpose(1, 2)
        return self.head(self.gru(lines)[0].amax(dim=1)).squeeze(1)


def main():
    config = Config()
    torch.manual_seed(3)
    dataset = SessionDataset(*write_log(config, seed=12))
    loader = DataLoader(dataset, config.batch_size, shuffle=True, collate_fn=collate)
    model = AnomalyGRU(len(dataset.vocabulary) + 2, config.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
    for epoch in range(config.epochs):
        total, hits = 0.0, 0
        for words, labels in loader:
            logits = model(words)
            loss = nn.functional.binary_cross_entropy_with_logits(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            hits += int(((logits > 0) == labels.bool()).sum())
        print(f"epoch {epoch}: loss {total / len(loader):.4f}, accuracy {hits / len(dataset):.3f}")


if __name__ == "__main__":
    main()
