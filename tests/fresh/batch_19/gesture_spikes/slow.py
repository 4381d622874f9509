"""Spiking network on gestures of an event camera: leaky neurons over many short time bins, surrogate gradients."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class FastSigmoid(torch.autograd.Function):
    """A step forwards, the slope of a fast sigmoid backwards."""

    slope = 10.0

    @staticmethod
    def forward(ctx, potential):
        ctx.save_for_backward(potential)
        return (potential > 0).to(potential.dtype)

    @staticmethod
    def backward(ctx, grad):
        (potential,) = ctx.saved_tensors
        return grad / (1.0 + FastSigmoid.slope * potential.abs()).square()


class Leaky(nn.Module):
    """Leaky integrate-and-fire neurons with a synaptic current, reset by subtraction."""

    def __init__(self, alpha, beta, threshold=1.0):
        super().__init__()
        self.alpha, self.beta, self.threshold = alpha, beta, threshold

    def forward(self, current, synapse, membrane):
        synapse = self.alpha * synapse + current
        membrane = self.beta * membrane + synapse
        spike = FastSigmoid.apply(membrane - self.threshold)
        return spike, synapse, membrane - spike.detach() * self.threshold


class GestureNet(nn.Module):
    def __init__(self, pixels, hidden, classes, alpha=0.8, beta=0.9):
        super().__init__()
        self.encode = nn.Linear(pixels, hidden, bias=False)
        self.readout = nn.Linear(hidden, classes)
        self.neurons = Leaky(alpha, beta)
        self.hidden = hidden

    def forward(self, events):
        bins, batch, _ = events.shape
        synapse = events.new_zeros(batch, self.hidden)
        membrane = events.new_zeros(batch, self.hidden)
        spikes = []
        for event in events.unbind(0):
            spike, synapse, membrane = self.neurons(self.encode(event), synapse, membrane)
            spikes.append(spike)
        rate = torch.stack(spikes).sum(0) / bins
        trace = synapse + membrane
        return self.readout(rate * 10.0 + trace), rate


def make_gestures(count, bins, pixels, classes, seed):
    """Events in the first half of a recording, then stillness."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (count,), generator=generator)
    prototypes = torch.rand(classes, 10, pixels, generator=generator)
    events = torch.zeros(count, bins, pixels)
    burst = torch.rand(count, bins // 2, pixels, generator=generator) < 0.1 * prototypes[labels].repeat_interleave(
        bins // 20, dim=1
    )
    events[:, : bins // 20 * 10] = burst.float()
    return events, labels


def time_first(samples):
    events, labels = zip(*samples)
    return torch.stack(events, dim=1), torch.stack(labels)


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    right = total = 0
    for events, labels in loader:
        logits, _ = model(events)
        right += (logits.argmax(1) == labels).sum().item()
        total += len(labels)
    model.train()
    return right / total


def train_epoch(model, loader, optimizer, criterion, rate_penalty):
    running = 0.0
    for events, labels in loader:
        logits, rate = model(events)
        loss = criterion(logits, labels) + rate_penalty * rate.mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        running += loss.detach()
    return running.item() / len(loader)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--bins", type=int, default=140)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--rate-penalty", type=float, default=1e-2)
    args = parser.parse_args()

    torch.manual_seed(7)
    classes, pixels = 11, 128
    train = make_gestures(960, args.bins, pixels, classes, seed=1)
    test = make_gestures(192, args.bins, pixels, classes, seed=1)
    train_loader = DataLoader(TensorDataset(*train), args.batch_size, shuffle=True, collate_fn=time_first)
    test_loader = DataLoader(TensorDataset(*test), args.batch_size, collate_fn=time_first)

    model = GestureNet(pixels, args.hidden, classes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(args.epochs):
        start = time.time()
        loss = train_epoch(model, train_loader, optimizer, criterion, args.rate_penalty)
        score = accuracy(model, test_loader)
        print(f"epoch {epoch}: loss {loss:.3f}, accuracy {score:.3f}, {time.time() - start:.1f} s")


if __name__ == "__main__":
    main()
