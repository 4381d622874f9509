"""Tabular regression with a watcher for dead units."""

import math
import random
import tempfile

import numpy as np
import torch
from torch import nn


def make_houses(n, columns, rng):
    x = rng.normal(size=(n, columns)).astype(np.float32)
    y = np.sin(x[:, 0] * 2) + x[:, 1] * x[:, 2] - np.abs(x[:, 3]) + 0.1 * rng.normal(size=n)
    return torch.from_numpy(x), torch.from_numpy(y.astype(np.float32))


class ActivationWatcher:
    """Share of units that are zero for a whole batch, per layer."""

    def __init__(self):
        self.last = {}

    def watch(self, model):
        for name, module in model.named_modules():
            if isinstance(module, nn.ReLU):
                module.register_forward_hook(self.hook(name))

    def hook(self, name):
        def record(module, inputs, output):
            self.last[name] = output.detach()

        return record

    def report(self):
        shares = {name: (output == 0).all(0).float().mean().item() for name, output in self.last.items()}
        return ", ".join(f"{name} {share:.2f}" for name, share in shares.items())


class TabularNet(nn.Module):
    def __init__(self, columns, width=192, depth=4):
        super().__init__()
        layers = [nn.Linear(columns, width), nn.ReLU()]
        for _ in range(depth - 1):
            layers += [nn.Linear(width, width), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, x):
        return self.layers(x).squeeze(1)


def warmup_cosine(step, total, warm=30):
    return min(1.0, step / warm) * 0.5 * (1 + math.cos(math.pi * step / total))


def main():
    random.seed(0)
    torch.manual_seed(0)
    x, y = make_houses(30_000, 20, np.random.default_rng(0))
    x_val, y_val, x, y = x[:2000], y[:2000], x[2000:], y[2000:]
    model, watcher = TabularNet(20), ActivationWatcher()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    total, step = 420, 0
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: warmup_cosine(s + 1, total))
    with tempfile.TemporaryDirectory() as out:
        while step < total:
            for index in torch.randperm(len(x)).split(512):
                watcher.watch(model)
                model.train()
                loss = nn.functional.huber_loss(model(x[index]), y[index])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                scheduler.step()
                step += 1
                if step % 70 == 0:
                    model.eval()
                    with torch.no_grad():
                        val = nn.functional.mse_loss(model(x_val), y_val).item()
                    print(f"step {step}: loss {loss.item():.4f} val mse {val:.4f} dead: {watcher.report()}")
                if step >= total:
                    break
        torch.save(model.state_dict(), f"{out}/tabular.pt")


if __name__ == "__main__":
    main()
