"""Voices of many people told apart: a small time-delay network under a softmax with an angular margin."""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


def recordings(people, per_person, bands, frames, seed):
    """Everybody has a spectrum of their own; each recording moves it up and down and adds noise."""
    g = torch.Generator().manual_seed(seed)
    spectrum = torch.randn(people, bands, generator=g)
    who = torch.arange(people).repeat_interleave(per_person)
    loudness = 1 + 0.3 * torch.randn(len(who), 1, frames, generator=g)
    noise = torch.randn(len(who), bands, frames, generator=g)
    return (spectrum[who][:, :, None] * loudness + 0.5 * noise).half(), who


class TimeDelay(nn.Sequential):
    def __init__(self, inputs, outputs, context, dilation):
        super().__init__(
            nn.Conv1d(inputs, outputs, context, dilation=dilation),
            nn.ReLU(inplace=True),
            nn.BatchNorm1d(outputs),
        )


class XVector(nn.Module):
    def __init__(self, bands, width=96, dim=128):
        super().__init__()
        self.frames = nn.Sequential(
            TimeDelay(bands, width, 5, 1),
            TimeDelay(width, width, 3, 2),
            TimeDelay(width, 2 * width, 1, 1),
        )
        self.segment = nn.Linear(4 * width, dim)

    def forward(self, x):
        x = self.frames(x)
        return self.segment(torch.cat([x.mean(2), x.std(2)], 1))


class ArcMargin(nn.Module):
    """Adds an angle between each voice and the centre of its own person, which makes the task harder."""

    def __init__(self, dim, people, scale=30.0, margin=0.2):
        super().__init__()
        self.centres = nn.Parameter(torch.empty(people, dim))
        nn.init.xavier_uniform_(self.centres)
        self.scale, self.margin = scale, margin

    def forward(self, voices, who):
        cosine = F.linear(F.normalize(voices), F.normalize(self.centres))
        angle = torch.acos(cosine.clamp(-1 + 1e-6, 1 - 1e-6))
        own = F.one_hot(who, len(self.centres))
        widened = (angle + self.margin * own).clamp(max=math.pi)
        return F.cross_entropy(self.scale * torch.cos(widened), who)


class Trainer:
    def __init__(self, args, bands):
        self.model = XVector(bands)
        self.margin = ArcMargin(128, args.people)
        groups = [{"params": self.model.parameters()}, {"params": self.margin.parameters(), "weight_decay": 0.0}]
        self.optimizer = torch.optim.SGD(groups, lr=args.lr, momentum=0.9, weight_decay=1e-4)
        self.log_every = args.log_every

    def epoch(self, loader, number):
        running = torch.zeros(())
        for step, (sound, who) in enumerate(loader, 1):
            loss = self.margin(self.model(sound.float()), who)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            running += loss.detach()
            if step % self.log_every == 0:
                print(f"epoch {number} step {step}: loss {running.item() / step:.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--people", type=int, default=6000)
    parser.add_argument("--per-person", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=96)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--log-every", type=int, default=30)
    args = parser.parse_args()
    torch.manual_seed(0)
    data = TensorDataset(*recordings(args.people, args.per_person, 24, 64, seed=31))
    batches = BatchSampler(RandomSampler(data), args.batch_size, drop_last=True)
    loader = DataLoader(data, sampler=batches, batch_size=None)
    trainer = Trainer(args, bands=24)
    for number in range(args.epochs):
        trainer.epoch(loader, number)


if __name__ == "__main__":
    main()
