"""Predict the next samples of sine waves."""

import argparse
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim


def generate(path, waves, length):
    np.random.seed(2)
    x = np.arange(length)[None] + np.random.randint(-80, 80, (waves, 1))
    np.save(path, np.sin(x / np.random.uniform(8, 24, (waves, 1))).astype(np.float32))


class Sequence(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.hidden = hidden
        self.cell1 = nn.LSTMCell(1, hidden)
        self.cell2 = nn.LSTMCell(hidden, hidden)
        self.linear = nn.Linear(hidden, 1)

    def forward(self, series):
        h = c = h2 = c2 = torch.zeros(len(series), self.hidden)
        outputs = []
        for x in series.split(1, dim=1):
            h, c = self.cell1(x, (h, c))
            h2, c2 = self.cell2(h, (h2, c2))
            outputs.append(self.linear(h2))
        return torch.cat(outputs, dim=1)


def evaluate(net, series, criterion):
    net.eval()
    with torch.no_grad():
        loss = criterion(net(series[:, :-1]), series[:, 1:])
    net.train()
    return loss.item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=160, help="steps to run")
    parser.add_argument("--waves", type=int, default=256)
    parser.add_argument("--length", type=int, default=65)
    parser.add_argument("--batch", type=int, default=24)
    opt = parser.parse_args()
    np.random.seed(0)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        generate(f"{folder}/traindata.npy", opt.waves, opt.length)
        data = torch.from_numpy(np.load(f"{folder}/traindata.npy"))
        train, test = data[16:], data[:16]
        seq = Sequence()
        criterion = nn.MSELoss()
        optimizer = optim.Adam(seq.parameters(), lr=3e-3)
        best = float("inf")
        for i in range(opt.steps):
            batch = train[torch.randint(0, len(train), (opt.batch,))]
            optimizer.zero_grad()
            loss = criterion(seq(batch[:, :-1]), batch[:, 1:])
            loss.backward()
            optimizer.step()
            if i % 40 == 0:
                score = evaluate(seq, test, criterion)
                print(f"STEP: {i} loss: {loss.item():.5f} test loss: {score:.5f}")
                if score < best:
                    best = score
                    torch.save(seq.state_dict(), f"{folder}/best.pt")
