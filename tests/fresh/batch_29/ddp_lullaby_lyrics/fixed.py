"""Lines of lullabies: a language model on two ranks, with small batches that are added up."""

import argparse
import contextlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Lullabies(Dataset):
    """Lines in which a word mostly follows one of the few that the one before allows."""

    def __init__(self, lines, length, words, seed):
        generator = torch.Generator().manual_seed(seed)
        follow = torch.randint(words, (words, 4), generator=generator)
        choice = torch.randint(4, (lines, length), generator=generator)
        text = [torch.randint(words, (lines,), generator=generator)]
        for place in range(length):
            text.append(follow[text[-1], choice[:, place]])
        self.text = torch.stack(text, dim=1)

    def __len__(self):
        return len(self.text)

    def __getitem__(self, index):
        return self.text[index, :-1], self.text[index, 1:]


class LyricsModel(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, words)

    def forward(self, words):
        states, _ = self.rnn(self.embed(words))
        return self.out(self.norm(states))


class Accumulator:
    """Steps the optimizer after every few batches."""

    def __init__(self, model, optimizer, every):
        self.model, self.optimizer, self.every = model, optimizer, every
        self.seen = 0

    def __call__(self, words, targets):
        self.seen += 1
        last = self.seen % self.every == 0
        with contextlib.nullcontext() if last else self.model.no_sync():
            scores = self.model(words)
            loss = F.cross_entropy(scores.flatten(0, 1), targets.flatten())
            (loss / self.every).backward()
        if last:
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", type=int, default=4096)
    parser.add_argument("--length", type=int, default=16)
    parser.add_argument("--words", type=int, default=3000)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=8)
    return parser.parse_args()


def main():
    args = parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    dataset = Lullabies(args.lines, args.length, args.words, args.seed)
    sampler = DistributedSampler(dataset, shuffle=True, seed=args.seed, drop_last=True)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler, drop_last=True)
    model = DistributedDataParallel(LyricsModel(args.words, args.width))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * 100, momentum=0.9)
    step = Accumulator(model, optimizer, args.accumulate)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        losses = torch.stack([step(words, targets) for words, targets in loader])
        if rank == 0:
            print(f"epoch {epoch}: loss {losses.mean():.4f}, at the end {losses[-50:].mean():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
