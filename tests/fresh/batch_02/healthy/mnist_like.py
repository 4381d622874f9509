"""Digits-like classification as in the first example of every tutorial, data held in memory."""

import argparse
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.optim.lr_scheduler import StepLR


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 24, 3, 1)
        self.conv2 = nn.Conv2d(24, 48, 3, 1)
        self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(6912, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = self.dropout1(F.max_pool2d(x, 2)).flatten(1)
        x = self.dropout2(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), dim=1)


def digits(n, seed):
    g = torch.Generator().manual_seed(seed)
    shapes = F.interpolate(torch.randn(10, 1, 7, 7, generator=torch.Generator().manual_seed(5)), size=28)
    y = torch.randint(0, 10, (n,), generator=g)
    return shapes[y] + torch.randn(n, 1, 28, 28, generator=g), y


def batches(x, y, size):
    order = torch.randperm(len(x))
    for idx in order.split(size):
        yield x[idx], y[idx]


def train(args, model, data, optimizer, epoch):
    model.train()
    for batch_idx, (x, target) in enumerate(batches(*data, args.batch_size)):
        optimizer.zero_grad()
        loss = F.nll_loss(model(x), target)
        loss.backward()
        optimizer.step()
        if batch_idx % args.log_interval == 0:
            print(f"Train Epoch: {epoch} [{batch_idx * len(x)}/{len(data[0])}]\tLoss: {loss.item():.6f}")


def test(model, data):
    model.eval()
    with torch.no_grad():
        output = model(data[0])
        loss = F.nll_loss(output, data[1]).item()
        correct = (output.argmax(1) == data[1]).sum().item()
    print(f"Test set: Average loss: {loss:.4f}, Accuracy: {correct}/{len(data[0])}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1.0)
    parser.add_argument("--gamma", type=float, default=0.7)
    parser.add_argument("--log-interval", type=int, default=20)
    args = parser.parse_args()
    torch.manual_seed(1)
    train_data, test_data = digits(4480, 0), digits(256, 1)
    model = Net()
    optimizer = optim.Adadelta(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    for epoch in range(1, args.epochs + 1):
        train(args, model, train_data, optimizer, epoch)
        test(model, test_data)
        scheduler.step()
    with tempfile.NamedTemporaryFile(suffix=".pt") as file:
        torch.save(model.state_dict(), file.name)


if __name__ == "__main__":
    main()
