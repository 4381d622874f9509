"""Headlines from token sequences: a GRU with attention, scored by ROUGE-1 on held-out documents."""

from collections import Counter
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

PAD, BOS, EOS = 0, 1, 2


@dataclass
class Settings:
    vocabulary: int = 800
    document_length: int = 48
    summary_length: int = 12
    train_documents: int = 11200
    eval_documents: int = 96
    batch_size: int = 32
    embedding: int = 64
    hidden: int = 128
    eval_every: int = 40
    lr: float = 2e-3


def make_corpus(count, s, generator):
    """A summary is every fourth word of its document, then the end mark."""
    documents = torch.randint(3, s.vocabulary, (count, s.document_length), generator=generator)
    summaries = documents[:, :: s.document_length // s.summary_length][:, : s.summary_length]
    ends = torch.full((count, 1), EOS)
    return documents, torch.cat([summaries, ends], 1)


class Encoder(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.embedding = nn.Embedding(s.vocabulary, s.embedding, padding_idx=PAD)
        self.gru = nn.GRU(s.embedding, s.hidden, batch_first=True)

    def forward(self, documents):
        return self.gru(self.embedding(documents))


class Decoder(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.embedding = nn.Embedding(s.vocabulary, s.embedding, padding_idx=PAD)
        self.gru = nn.GRU(s.embedding, s.hidden, batch_first=True)
        self.combine = nn.Linear(2 * s.hidden, s.hidden)
        self.out = nn.Linear(s.hidden, s.vocabulary)

    def forward(self, tokens, state, memory):
        x, state = self.gru(self.embedding(tokens), state)
        attention = torch.softmax(x @ memory.transpose(1, 2) / x.shape[-1] ** 0.5, -1)
        return self.out(torch.tanh(self.combine(torch.cat([x, attention @ memory], -1)))), state


class Summariser(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.encoder, self.decoder = Encoder(s), Decoder(s)
        self.max_length = s.summary_length + 2

    def forward(self, documents, summaries):
        memory, state = self.encoder(documents)
        starts = torch.full((len(documents), 1), BOS)
        logits, _ = self.decoder(torch.cat([starts, summaries[:, :-1]], 1), state, memory)
        return F.cross_entropy(logits.flatten(0, 1), summaries.flatten())

    @torch.no_grad()
    def generate(self, documents):
        memory, state = self.encoder(documents)
        tokens = torch.full((len(documents), 1), BOS)
        generated = []
        for _ in range(self.max_length):
            logits, state = self.decoder(tokens, state, memory)
            tokens = logits.argmax(-1)
            generated.append(tokens)
        return torch.cat(generated, 1)


def rouge_1(prediction, reference):
    prediction = prediction[: prediction.index(EOS)] if EOS in prediction else prediction
    reference = reference[: reference.index(EOS)]
    overlap = sum((Counter(prediction) & Counter(reference)).values())
    return 2 * overlap / max(len(prediction) + len(reference), 1)


class Evaluator:
    def __init__(self, dataset):
        self.loader = DataLoader(dataset, batch_size=1)

    def __call__(self, model):
        model.eval()
        scores = []
        for documents, summaries in self.loader:
            for prediction, reference in zip(model.generate(documents).tolist(), summaries.tolist()):
                scores.append(rouge_1(prediction, reference))
        model.train()
        return sum(scores) / len(scores)


def main():
    s = Settings()
    torch.manual_seed(31)
    generator = torch.Generator().manual_seed(31)
    train_set = TensorDataset(*make_corpus(s.train_documents, s, generator))
    evaluate = Evaluator(TensorDataset(*make_corpus(s.eval_documents, s, generator)))
    loader = DataLoader(train_set, s.batch_size, shuffle=True, generator=generator)
    model = Summariser(s)
    optimizer = torch.optim.Adam(model.parameters(), lr=s.lr)
    for step, (documents, summaries) in enumerate(loader, 1):
        loss = model(documents, summaries)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % s.eval_every == 0:
            print(f"step {step}: loss {loss.item():.4f} rouge-1 {evaluate(model):.4f}")


if __name__ == "__main__":
    main()
