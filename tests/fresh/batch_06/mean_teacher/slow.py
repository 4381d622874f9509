"""Semi-supervised learning: the student learns from few labels and from a teacher that follows its weights slowly."""

import argparse
from collections import OrderedDict
from copy import deepcopy

import torch
from torch import nn
from torch.nn import functional as F


def make_digits(count, seed):
    """Pictures of bars; the class is the number of bars, two digits give the angle."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 10, (count,), generator=generator)
    grid = torch.linspace(0, 6.28, 32)
    phase = torch.rand(count, 1, 1, generator=generator) * 6.28
    tilt = torch.rand(count, 1, 1, generator=generator) - 0.5
    waves = torch.sin((y[:, None, None] + 1) * 0.5 * (grid[None, :, None] + tilt * grid[None, None]) + phase)
    return (waves + 0.6 * torch.randn(count, 32, 32, generator=generator))[:, None], y


class Net(nn.Module):
    """VGG's shape: a few convolutions, then large fully connected layers."""

    def __init__(self, classes=10, fc=2048):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(24, 48, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(48, 64, 3, padding=1), nn.ReLU(), nn.Flatten(),
        )  # fmt: skip
        self.classifier = nn.Sequential(
            nn.Linear(4096, fc), nn.ReLU(), nn.Linear(fc, fc), nn.ReLU(), nn.Linear(fc, classes)
        )

    def forward(self, x):
        return self.classifier(self.features(x))


def jitter(x):
    return x + 0.1 * torch.randn_like(x)


class MeanTeacherTrainer:
    def __init__(self, args):
        self.args = args
        self.student = Net()
        self.teacher = deepcopy(self.student).requires_grad_(False)
        self.optimizer = torch.optim.SGD(self.student.parameters(), lr=args.lr, momentum=0.9, fused=True)
        self.labelled = make_digits(args.labelled, seed=1)
        self.unlabelled, _ = make_digits(args.unlabelled, seed=2)

    @torch.no_grad()
    def update_teacher(self, keep_rate):
        student_dict = self.student.state_dict()
        new_teacher_dict = OrderedDict()
        for key, value in self.teacher.state_dict().items():
            new_teacher_dict[key] = student_dict[key] * (1 - keep_rate) + value * keep_rate
        self.teacher.load_state_dict(new_teacher_dict)

    def batches(self):
        size = self.args.batch_size
        for rows in torch.randperm(len(self.unlabelled)).split(size):
            few = torch.randint(0, len(self.labelled[0]), (size,))
            yield self.labelled[0][few], self.labelled[1][few], self.unlabelled[rows]

    def step(self, x, y, u, weight):
        logits = self.student(torch.cat([jitter(x), jitter(u)]))
        with torch.no_grad():
            wanted = self.teacher(jitter(u)).softmax(dim=1)
        supervised = F.cross_entropy(logits[: len(x)], y)
        consistency = F.mse_loss(logits[len(x) :].softmax(dim=1), wanted)
        loss = supervised + weight * consistency
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.update_teacher(self.args.ema_decay)
        return supervised.detach(), consistency.detach()

    def fit(self):
        done = 0
        for epoch in range(self.args.epochs):
            for x, y, u in self.batches():
                supervised, consistency = self.step(x, y, u, min(1.0, done / 60) * 10)
                done += 1
                if done % 20 == 0:
                    print(f"{epoch} {done}: {supervised.item():.4f} {consistency.item():.5f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--labelled", type=int, default=400)
    parser.add_argument("--unlabelled", type=int, default=1920)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--ema_decay", type=float, default=0.99)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    MeanTeacherTrainer(arguments).fit()
