"""Retrieval by late interaction on two ranks: documents of both ranks are negatives for each question."""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.nn.functional import all_gather
from torch.nn.parallel import DistributedDataParallel

WORDS, QUESTION, DOCUMENT = 500, 12, 40


class Pairs:
    """Questions are made of words of their document, shuffled and with noise."""

    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.documents = torch.randint(1, WORDS, (count, DOCUMENT), generator=g)
        place = torch.rand(count, DOCUMENT, generator=g).argsort(1)[:, :QUESTION]
        self.questions = self.documents.gather(1, place)
        noise = torch.rand(self.questions.shape, generator=g) < 0.3
        self.questions = torch.where(noise, torch.randint(1, WORDS, noise.shape, generator=g), self.questions)

    def batches(self, size, rank, world, epoch):
        order = torch.randperm(len(self.documents), generator=torch.Generator().manual_seed(epoch))
        for index in order[rank::world].split(size):
            if len(index) == size:
                yield self.questions[index], self.documents[index]


class TokenEncoder(nn.Module):
    def __init__(self, dim=64, out=32):
        super().__init__()
        self.embed = nn.Embedding(WORDS, dim)
        self.layer = nn.TransformerEncoderLayer(dim, 4, 2 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.project = nn.Linear(dim, out, bias=False)

    def encode(self, tokens):
        return F.normalize(self.project(self.layer(self.embed(tokens))), dim=2)

    def forward(self, questions, documents):
        return self.encode(questions), self.encode(documents)


def maxsim(questions, documents):
    scores = torch.einsum("qsh,dth->qdst", questions, documents)
    return scores.amax(3).sum(2)


class Contrastive(nn.Module):
    def __init__(self, temperature=0.5):
        super().__init__()
        self.temperature = temperature

    def forward(self, questions, documents):
        rank, size = dist.get_rank(), len(questions)
        documents = torch.cat(all_gather(documents))
        labels = torch.arange(size) + rank * size
        scores = maxsim(questions, documents) / self.temperature
        return F.cross_entropy(scores, labels)


def main(epochs=2, batch=32):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    torch.set_num_threads(max(1, (os.cpu_count() or 2) // world))
    data = Pairs(3584, seed=0)
    model, criterion = DistributedDataParallel(TokenEncoder()), Contrastive()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        total = torch.zeros(())
        steps = 0
        for questions, documents in data.batches(batch, rank, world, epoch):
            loss = criterion(*model(questions, documents))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
            steps += 1
        if rank == 0:
            print(f"epoch {epoch}: loss {total.item() / steps:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
