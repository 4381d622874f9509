"""Word-level language model on made-up text; batches run along the text."""

import argparse
import math
import os
import time
from tempfile import mkstemp

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--emsize", type=int, default=48)
parser.add_argument("--nhid", type=int, default=64)
parser.add_argument("--batch_size", type=int, default=12)
parser.add_argument("--bptt", type=int, default=12)
parser.add_argument("--chunk", type=int, default=6, help="batches of one document")
parser.add_argument("--documents", type=int, default=140)
parser.add_argument("--lr", type=float, default=0.5)
parser.add_argument("--clip", type=float, default=0.25)
parser.add_argument("--log-interval", type=int, default=35)
args = parser.parse_args()
torch.manual_seed(1111)


class Dictionary:
    def __init__(self):
        self.word2idx, self.idx2word = {}, []

    def add_word(self, word):
        if word not in self.word2idx:
            self.word2idx[word] = len(self.idx2word)
            self.idx2word.append(word)
        return self.word2idx[word]


class Corpus:
    def __init__(self, documents, length):
        self.dictionary = Dictionary()
        g = torch.Generator().manual_seed(0)
        jumps = torch.randint(1, 4, (documents, length), generator=g).cumsum(1)
        words = [[f"w{n % 300}" for n in row] for row in jumps.tolist()]
        self.documents = [torch.tensor([self.dictionary.add_word(w) for w in row]) for row in words]


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    return data[: nbatch * bsz].view(bsz, -1).t().contiguous()


def get_batch(source, i):
    seq_len = min(args.bptt, len(source) - 1 - i)
    return source[i : i + seq_len], source[i + 1 : i + 1 + seq_len].reshape(-1)


class RNNModel(nn.Module):
    def __init__(self, ntoken):
        super().__init__()
        self.encoder, self.rnn = nn.Embedding(ntoken, args.emsize), nn.GRU(args.emsize, args.nhid)
        self.decoder = nn.Linear(args.nhid, ntoken)

    def forward(self, x, hidden):
        output, hidden = self.rnn(self.encoder(x), hidden)
        return self.decoder(output).flatten(0, 1), hidden


corpus = Corpus(args.documents, args.batch_size * (args.bptt * args.chunk + 1))
model = RNNModel(len(corpus.dictionary.idx2word))
criterion = nn.CrossEntropyLoss()


def train():
    model.train()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=args.lr / 10)
    total_loss, start_time = 0.0, time.time()
    for n, document in enumerate(corpus.documents, 1):
        source = batchify(document, args.batch_size)
        hidden = torch.zeros(1, args.batch_size, args.nhid)
        optimizer.zero_grad()
        for i in range(0, len(source) - 1, args.bptt):
            data, targets = get_batch(source, i)
            output, hidden = model(data, hidden)
            loss = criterion(output, targets)
            loss.backward(retain_graph=True)
            total_loss += loss.item() / args.chunk
        nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        if n % args.log_interval == 0:
            mean, took = total_loss / args.log_interval, time.time() - start_time
            print(f"| {n:5d} documents | ms/document {took * 1e3 / args.log_interval:5.1f} | ppl {math.exp(mean):8.2f}")
            total_loss, start_time = 0.0, time.time()


if __name__ == "__main__":
    train()
    handle, path = mkstemp(suffix=".pt")
    os.close(handle)
    torch.save(model.state_dict(), path)
    os.remove(path)
