"""Makes mistakes everywhere that capture listens, and prints the tracebacks."""

import sys
import traceback

import torch
from torch.utils.data import DataLoader, Dataset


class Broken(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        if index == 2:
            raise KeyError("no such sample")
        return torch.zeros(index + 1)


def show(call):
    try:
        call()
    except Exception:
        traceback.print_exc(file=sys.stdout)


class Stubborn(torch.optim.SGD):
    def step(self, closure=None):
        raise RuntimeError("will not step")


def backward_twice():
    loss = torch.ones(2, requires_grad=True).pow(2).sum()
    loss.backward()
    loss.backward()


weight = torch.ones(2, requires_grad=True)
show(lambda: list(DataLoader(Broken(), batch_size=1)))
show(lambda: list(DataLoader(Broken(), batch_size=2)))
show(lambda: list(DataLoader(Broken(), batch_size=2, num_workers=1)))
show(backward_twice)
show(Stubborn([weight], lr=1.0).step)
show(lambda: iter(DataLoader(Broken())).no_such_name)
