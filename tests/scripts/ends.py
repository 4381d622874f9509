"""Trains a little, then ends in the way its first argument names, in the middle of the profiled window."""

import atexit
import os
import signal
import sys

import torch

how = sys.argv[1]
torch.manual_seed(0)
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
atexit.register(print, "at exit", flush=True)


def end():
    if how == "raise":
        raise ValueError("the script's own mistake")
    if how == "_exit":
        sys.stdout.flush()
        os._exit(5)
    if how == "term":
        os.kill(os.getpid(), signal.SIGTERM)
    if how == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
    if how.startswith("exit"):
        sys.exit({"exit": None, "exit0": 0, "exit3": 3, "exit-text": "the script says no"}[how])


def step(data):
    optimizer.zero_grad()
    loss = model(data).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss


for number in range(40):
    loss = step(torch.randn(4, 8))
    if number == 30:
        end()
print(f"{loss.item():.9f}", flush=True)
