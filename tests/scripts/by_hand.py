"""Loops that update their weights by hand, without a loader and without an optimizer; the first argument names one."""

import json
import sys

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
source = torch.randn(4000, 64)
did = {"iterations": 0, "optimizer_steps": 0}


def get_batch(number):
    return source[number * 4 : number * 4 + 4]


def update():
    for parameter in model.parameters():
        parameter.data.add_(parameter.grad, alpha=-0.01)
    did["iterations"] += 1


def plain(iterations=80):
    for number in range(iterations):
        model.zero_grad()
        model(get_batch(number)).pow(2).mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        update()


def two_losses():
    """Two backward passes in each iteration, and one of something else in between."""
    for number in range(80):
        model.zero_grad()
        model(get_batch(number)).pow(2).mean().backward()
        inputs = get_batch(number).clone().requires_grad_()
        torch.autograd.grad(model(inputs).sum(), inputs)
        model(-get_batch(number)).abs().mean().backward()
        update()


def checked():
    """A check of gradients before the training: its passes are none of the loop's."""
    inputs = torch.randn(2, 8, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(torch.tanh, inputs)
    plain()


def warmed_up():
    """The optimizer is made after ten passes that only warm up."""
    for number in range(10):
        model(get_batch(number)).mean().backward()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number in range(80):
        optimizer.zero_grad()
        model(get_batch(number)).pow(2).mean().backward()
        optimizer.step()
        did["iterations"] += 1
        did["optimizer_steps"] += 1


def fed_later():
    """The same before a loader is there."""
    for number in range(10):
        model(get_batch(number)).mean().backward()
    for (inputs,) in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(source[:320]), batch_size=4):
        model.zero_grad()
        model(inputs).pow(2).mean().backward()
        update()


def accumulated():
    """An optimizer that steps after twelve passes is alive all the time."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number in range(240):
        model(get_batch(number)).pow(2).mean().backward()
        if number % 12 == 11:
            optimizer.step()
            optimizer.zero_grad()
            did["iterations"] += 1
            did["optimizer_steps"] += 1


def few():
    plain(iterations=6)


globals()[sys.argv[1]]()
print(json.dumps(did))
