"""Sequence classification on two ranks; each has its shard of the documents."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pad_sequence

VOCABULARY, CLASSES = 3000, 4


class Corpus:
    """Documents of 12 to 140 words, from short to long. Batches hold documents of similar length."""

    def __init__(self, documents, seed):
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.randint(12, 141, (documents,), generator=generator).sort().values.tolist()
        self.labels = torch.randint(0, CLASSES, (documents,), generator=generator)
        self.documents = []
        for length, label in zip(lengths, self.labels.tolist()):
            words = torch.randint(1, VOCABULARY, (length,), generator=generator)
            words[::5] = 1 + label * 10 + torch.randint(0, 10, words[::5].shape, generator=generator)
            self.documents.append(words)

    def shard(self, rank, world):
        """The rows of one rank."""
        size = len(self.documents) // world
        return list(range(rank * size, (rank + 1) * size))

    def batch(self, rows):
        return pad_sequence([self.documents[row] for row in rows], batch_first=True), self.labels[rows]


class Classifier(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, dim, padding_idx=0)
        self.convs = nn.ModuleList([nn.Conv1d(dim, dim, width, padding=width // 2) for width in (3, 5)])
        self.norm = nn.LayerNorm(2 * dim)
        self.out = nn.Linear(2 * dim, CLASSES)

    def forward(self, words):
        x = self.embedding(words).transpose(1, 2)
        pooled = [torch.relu(conv(x)).amax(dim=2) for conv in self.convs]
        return self.out(self.norm(torch.cat(pooled, dim=1)))


def train(rank, world):
    corpus = Corpus(1920, seed=160)
    rows = corpus.shard(rank, world)
    batches = [rows[start : start + 32] for start in range(0, len(rows), 32)]
    model = DistributedDataParallel(Classifier())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    shuffle = torch.Generator().manual_seed(161)
    for epoch in range(5):
        for index in torch.randperm(len(batches), generator=shuffle).tolist():
            words, labels = corpus.batch(batches[index])
            loss = criterion(model(words), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    train(dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
