"""Language model with an LSTM over contiguous text; hidden state detached between batches."""

import argparse
import math
import tempfile
import time

import torch
from torch import nn

parser = argparse.ArgumentParser(description="LSTM language model")
parser.add_argument("--emsize", type=int, default=128)
parser.add_argument("--nhid", type=int, default=192)
parser.add_argument("--nlayers", type=int, default=2)
parser.add_argument("--clip", type=float, default=0.25)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--batch_size", type=int, default=20)
parser.add_argument("--bptt", type=int, default=30)
parser.add_argument("--log-interval", type=int, default=35)
args = parser.parse_args()


def text(length, vocab, seed):
    g = torch.Generator().manual_seed(seed)
    return (torch.randint(1, 5, (length,), generator=g).cumsum(0) * 17) % vocab


def batchify(data, bsz):
    return data[: len(data) // bsz * bsz].view(bsz, -1).t().contiguous()


def get_batch(source, i):
    n = min(args.bptt, len(source) - 1 - i)
    return source[i : i + n], source[i + 1 : i + 1 + n].reshape(-1)


class RNNModel(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.drop, self.encoder = nn.Dropout(0.2), nn.Embedding(vocab, args.emsize)
        self.rnn = nn.LSTM(args.emsize, args.nhid, args.nlayers, dropout=0.2)
        self.decoder = nn.Linear(args.nhid, vocab)

    def forward(self, x, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(x)), hidden)
        return self.decoder(self.drop(output)).flatten(0, 1), hidden

    def init_hidden(self, bsz):
        return tuple(torch.zeros(args.nlayers, bsz, args.nhid) for _ in range(2))


def evaluate(model, source):
    model.eval()
    total, hidden = 0.0, model.init_hidden(source.shape[1])
    with torch.no_grad():
        for i in range(0, len(source) - 1, args.bptt):
            data, targets = get_batch(source, i)
            output, hidden = model(data, hidden)
            total += len(data) * nn.functional.cross_entropy(output, targets).item()
    return total / (len(source) - 1)


def train(model, source, optimizer, epoch):
    model.train()
    total, start, hidden = torch.zeros(()), time.time(), model.init_hidden(args.batch_size)
    for batch, i in enumerate(range(0, len(source) - 1, args.bptt), 1):
        data, targets = get_batch(source, i)
        hidden = tuple(h.detach() for h in hidden)
        optimizer.zero_grad()
        output, hidden = model(data, hidden)
        loss = nn.functional.cross_entropy(output, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        total += loss.detach()
        if batch % args.log_interval == 0:
            ms = (time.time() - start) * 1000 / args.log_interval
            print(
                f"| epoch {epoch} | {batch} batches | ms/batch {ms:5.2f} | loss {total.item() / args.log_interval:5.2f}"
            )
            total, start = torch.zeros(()), time.time()


def main():
    torch.manual_seed(1111)
    vocab = 1000
    train_data, val_data = batchify(text(46_000, vocab, 0), args.batch_size), batchify(text(4000, vocab, 1), 10)
    model = RNNModel(vocab)
    optimizer = torch.optim.SGD(model.parameters(), lr=5.0)
    for epoch in range(1, args.epochs + 1):
        train(model, train_data, optimizer, epoch)
        val_loss = evaluate(model, val_data)
        print(f"| end of epoch {epoch} | valid loss {val_loss:5.2f} | valid ppl {math.exp(val_loss):8.2f}")
    with tempfile.TemporaryFile() as file:
        torch.save(model.state_dict(), file)


if __name__ == "__main__":
    main()
