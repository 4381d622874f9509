"""Distil a large detector of loom faults into one that fits on the loom's controller, with accelerate."""

import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

FAULTS = ("none", "broken_warp", "broken_weft", "slack_thread", "worn_shuttle", "stop_mark")


def parse_args():
    parser = argparse.ArgumentParser(description="Distillation of a vibration classifier.")
    parser.add_argument("--train_size", type=int, default=1536)
    parser.add_argument("--length", type=int, default=192)
    parser.add_argument("--sensors", type=int, default=6)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--pretrain_steps", type=int, default=25)
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--teacher_width", type=int, default=48)
    parser.add_argument("--student_width", type=int, default=24)
    parser.add_argument("--temperature", type=float, default=3.0)
    parser.add_argument("--alpha", type=float, default=0.7)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=13)
    return parser.parse_args()


def make_vibrations(args):
    labels = torch.randint(0, len(FAULTS), (args.train_size,))
    time = torch.linspace(0, 1, args.length)
    frequency = 6.0 + 4.0 * labels[:, None, None] + torch.rand(args.train_size, 1, 1)
    phase = 2 * math.pi * torch.rand(args.train_size, args.sensors, 1)
    signal = torch.sin(2 * math.pi * frequency * time + phase)
    bursts = (torch.rand(args.train_size, 1, args.length) < 0.01 * (labels[:, None, None] + 1)).float()
    return signal + bursts + 0.6 * torch.randn(args.train_size, args.sensors, args.length), labels


class ResidualUnit(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.conv1 = nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)
        self.conv2 = nn.Conv1d(width, width, 3, padding=1)
        self.norm1 = nn.GroupNorm(8, width)
        self.norm2 = nn.GroupNorm(8, width)

    def forward(self, x):
        y = self.conv1(F.relu(self.norm1(x)))
        return x + self.conv2(F.relu(self.norm2(y)))


class VibrationNet(nn.Module):
    def __init__(self, sensors, width, units):
        super().__init__()
        self.enter = nn.Conv1d(sensors, width, 7, stride=2, padding=3)
        self.units = nn.Sequential(*(ResidualUnit(width, 2**i) for i in range(units)))
        self.leave = nn.Linear(width, len(FAULTS))

    def forward(self, signal):
        return self.leave(F.relu(self.units(self.enter(signal))).mean(dim=-1))


class DistillationLoss(nn.Module):
    def __init__(self, temperature, alpha):
        super().__init__()
        self.temperature = temperature
        self.alpha = alpha

    def forward(self, student_logits, teacher_logits, labels):
        soft = F.kl_div(
            F.log_softmax(student_logits / self.temperature, dim=-1),
            F.softmax(teacher_logits / self.temperature, dim=-1),
            reduction="batchmean",
        )
        hard = F.cross_entropy(student_logits, labels)
        return self.alpha * self.temperature**2 * soft + (1 - self.alpha) * hard


def pretrain(teacher, signals, labels, args):
    """Stands for the checkpoint of the large model."""
    for step in range(args.pretrain_steps):
        chosen = torch.arange(step * args.batch_size, (step + 1) * args.batch_size) % len(labels)
        gradients = torch.autograd.grad(
            F.cross_entropy(teacher(signals[chosen]), labels[chosen]), list(teacher.parameters())
        )
        with torch.no_grad():
            for parameter, gradient in zip(teacher.parameters(), gradients):
                parameter -= 0.02 * gradient


def main():
    args = parse_args()
    set_seed(args.seed)
    accelerator = Accelerator(cpu=True)
    signals, labels = make_vibrations(args)
    teacher = VibrationNet(args.sensors, args.teacher_width, units=4)
    pretrain(teacher, signals, labels, args)
    student = VibrationNet(args.sensors, args.student_width, units=3)
    optimizer = torch.optim.AdamW(student.parameters(), lr=args.lr)
    loader = DataLoader(TensorDataset(signals, labels), batch_size=args.batch_size, shuffle=True, drop_last=True)
    student, optimizer, loader = accelerator.prepare(student, optimizer, loader)
    teacher = teacher.to(accelerator.device).eval()
    criterion = DistillationLoss(args.temperature, args.alpha)

    for epoch in range(args.epochs):
        student.train()
        total = torch.zeros((), device=accelerator.device)
        for signal, label in loader:
            teacher_logits = teacher(signal)
            loss = criterion(student(signal), teacher_logits, label)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(student.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            total += loss.detach()
        accelerator.print(f"epoch {epoch}: loss {total.item() / len(loader):.4f}")


if __name__ == "__main__":
    main()
