"""Names plants from sentences about them: a GRU encoder and a decoder that holds one prototype for each species."""

import logging
import random
from collections import Counter

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("botany")

SPECIES = 180
TRAITS = [f"{part}-{look}" for part in ("leaf", "stem", "petal", "fruit", "root", "seed") for look in range(40)]


class Dictionary:
    def __init__(self, counted):
        self.index = {item: i + 1 for i, (item, _) in enumerate(counted.most_common())}

    def __len__(self):
        return len(self.index) + 1

    def encode(self, words):
        return torch.tensor([self.index.get(word, 0) for word in words])


def write_sentences(n, seed):
    """A species has its traits; a sentence tells some of them, and some that are wrong."""
    rng = random.Random(seed)
    typical = [random.Random(s).sample(TRAITS, 14) for s in range(SPECIES)]
    for _ in range(n):
        species = rng.randrange(SPECIES)
        words = rng.sample(typical[species], rng.randint(5, 9)) + rng.choices(TRAITS, k=3)
        rng.shuffle(words)
        yield words, species


class EuclideanDistance(nn.Module):
    """Squared distance of each row of the first matrix from each row of the second."""

    def forward(self, mat_1, mat_2):
        distances = [torch.sum((mat_1 - mat_2[i]) ** 2, dim=1) for i in range(mat_2.size(0))]
        return torch.stack(distances, dim=1)


class PrototypicalDecoder(nn.Module):
    def __init__(self, num_prototypes, embeddings_size, distance_function):
        super().__init__()
        self.prototype_vectors = nn.Parameter(torch.randn(num_prototypes, embeddings_size) / embeddings_size**0.5)
        self.distance = distance_function

    def forward(self, embedded):
        return -self.distance(embedded, self.prototype_vectors)


class SentenceEmbeddings(nn.Module):
    def __init__(self, vocabulary, size):
        super().__init__()
        self.words = nn.Embedding(vocabulary, size, padding_idx=0)
        self.rnn = nn.GRU(size, size, batch_first=True, bidirectional=True)
        self.project = nn.Linear(2 * size, size)

    def forward(self, ids):
        states, _ = self.rnn(self.words(ids))
        return self.project(states.amax(dim=1))


class TextClassifier(nn.Module):
    def __init__(self, embeddings, decoder):
        super().__init__()
        self.embeddings = embeddings
        self.decoder = decoder

    def forward_loss(self, ids, labels):
        scores = self.decoder(self.embeddings(ids))
        return F.cross_entropy(scores, labels), (scores.argmax(1) == labels).float().mean()


class ModelTrainer:
    def __init__(self, model, corpus, dictionary):
        self.model, self.corpus, self.dictionary = model, corpus, dictionary

    def collate(self, batch):
        ids = pad_sequence([self.dictionary.encode(words) for words, _ in batch], batch_first=True)
        return ids, torch.tensor([species for _, species in batch])

    def train(self, learning_rate, mini_batch_size, max_epochs):
        loader = DataLoader(self.corpus, mini_batch_size, shuffle=True, collate_fn=self.collate, drop_last=True)
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=learning_rate)
        self.model.train()
        for epoch in range(max_epochs):
            for batch_no, (ids, labels) in enumerate(loader, 1):
                loss, accuracy = self.model.forward_loss(ids, labels)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
                optimizer.step()
                if batch_no % 25 == 0:
                    log.info("epoch %d - iter %d - loss %.3f - accuracy %.2f", epoch, batch_no, loss, accuracy)


def main():
    torch.manual_seed(6)
    corpus = list(write_sentences(3200, seed=1))
    dictionary = Dictionary(Counter(word for words, _ in corpus for word in words))
    decoder = PrototypicalDecoder(SPECIES, 96, EuclideanDistance())
    classifier = TextClassifier(SentenceEmbeddings(len(dictionary), 96), decoder)
    ModelTrainer(classifier, corpus, dictionary).train(learning_rate=2e-3, mini_batch_size=64, max_epochs=4)


if __name__ == "__main__":
    main()
