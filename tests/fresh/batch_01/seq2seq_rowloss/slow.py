"""Encoder, attention decoder, a loss object, a trainer: reversing sequences of tokens."""

import logging
import os
import shutil
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F


class EncoderRNN(nn.Module):
    def __init__(self, vocab, hidden):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.rnn = nn.GRU(hidden, hidden, batch_first=True)

    def forward(self, x):
        return self.rnn(self.embedding(x))


class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear_out = nn.Linear(dim * 2, dim)

    def forward(self, output, context):
        weights = F.softmax(torch.bmm(output, context.transpose(1, 2)), dim=-1)
        mixed = torch.bmm(weights, context)
        return torch.tanh(self.linear_out(torch.cat([mixed, output], 2)))


class DecoderRNN(nn.Module):
    def __init__(self, vocab, hidden):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.rnn = nn.GRU(hidden, hidden, batch_first=True)
        self.attention = Attention(hidden)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, inputs, state, context):
        output, _ = self.rnn(self.embedding(inputs), state)
        return F.log_softmax(self.out(self.attention(output, context)), dim=-1)


class NLLLoss:
    def __init__(self, pad):
        self.criterion = nn.NLLLoss(ignore_index=pad, reduction="sum")
        self.reset()

    def reset(self):
        self.acc_loss, self.norm_term = 0, 0

    def eval_batch(self, outputs, target):
        for row in range(outputs.size(0)):
            for step in range(outputs.size(1)):
                self.acc_loss = self.acc_loss + self.criterion(outputs[row, step], target[row, step])
                self.norm_term += 1

    def backward(self):
        (self.acc_loss / self.norm_term).backward()

    def get_loss(self):
        return self.acc_loss.item() / self.norm_term


class Corpus:
    def __init__(self, vocab, length, batch_size, batches):
        g = torch.Generator().manual_seed(5)
        self.source = torch.randint(2, vocab, (batches, batch_size, length), generator=g)

    def __iter__(self):
        for source in self.source:
            target = source.flip(1)
            start = torch.ones(len(source), 1, dtype=torch.long)
            yield source, torch.cat([start, target[:, :-1]], 1), target


class SupervisedTrainer:
    def __init__(self, expt_dir, loss, print_every=40, checkpoint_every=80):
        self.expt_dir, self.loss = expt_dir, loss
        self.print_every, self.checkpoint_every = print_every, checkpoint_every
        self.logger = logging.getLogger(__name__)

    def _train_batch(self, batch, encoder, decoder, optimizer):
        source, inputs, target = batch
        self.loss.reset()
        context, state = encoder(source)
        self.loss.eval_batch(decoder(inputs, state, context), target)
        encoder.zero_grad()
        decoder.zero_grad()
        self.loss.backward()
        nn.utils.clip_grad_norm_([*encoder.parameters(), *decoder.parameters()], 5)
        optimizer.step()
        return self.loss.get_loss()

    def train(self, encoder, decoder, data, epochs):
        optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()])
        step, running = 0, 0.0
        for _ in range(epochs):
            for batch in data:
                running += self._train_batch(batch, encoder, decoder, optimizer)
                step += 1
                if step % self.print_every == 0:
                    self.logger.info("step %d, Train %.4f", step, running / self.print_every)
                    running = 0.0
                if step % self.checkpoint_every == 0:
                    torch.save(encoder.state_dict(), os.path.join(self.expt_dir, f"encoder_{step}.pt"))


def main():
    logging.basicConfig(level=logging.INFO)
    torch.manual_seed(0)
    folder = tempfile.mkdtemp()
    try:
        encoder, decoder = EncoderRNN(1000, 224), DecoderRNN(1000, 224)
        data = Corpus(vocab=1000, length=10, batch_size=24, batches=80)
        SupervisedTrainer(folder, NLLLoss(pad=0)).train(encoder, decoder, data, epochs=2)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
