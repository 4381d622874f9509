"""Training loops of many shapes, tiny; the first argument names one. Each prints what it did as JSON."""

import json
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(240, 8), torch.randn(240, 1))
did = {"iterations": 0, "optimizer_steps": 0, "eval": 0}


def batches(size=4, **options):
    return DataLoader(data, batch_size=size, shuffle=True, **options)


def train(inputs, labels, step=True):
    loss = nn.functional.mse_loss(model(inputs), labels)
    loss.backward()
    did["iterations"] += 1
    if step:
        optimizer.step()
        optimizer.zero_grad()
        did["optimizer_steps"] += 1
    return loss.item()


def evaluate(loader, most=None):
    with torch.no_grad():
        for number, (inputs, _) in enumerate(loader, start=1):
            model(inputs)
            did["eval"] += 1
            if number == most:
                return


def plain(epochs=1, **options):
    for _ in range(epochs):
        for inputs, labels in batches(**options):
            train(inputs, labels)


def gan():
    """Two optimizers in each iteration, no loader."""
    judge = nn.Linear(8, 1)
    second = torch.optim.Adam(judge.parameters())
    for _ in range(50):
        second.zero_grad()
        judge(torch.randn(4, 8)).mean().backward()
        second.step()
        train(torch.randn(4, 8), torch.randn(4, 1))
        did["optimizer_steps"] += 1


def accumulation():
    for number, (inputs, labels) in enumerate(batches()):
        train(inputs, labels, step=number % 4 == 3)


def scaler():
    """A GradScaler that skips: the gradient is infinite every third time."""
    scaling = torch.amp.GradScaler("cpu", enabled=True)
    for number, (inputs, labels) in enumerate(batches()):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.mse_loss(model(inputs).float(), labels)
        if number % 3 == 0:
            loss = loss * float("inf")
        scaling.scale(loss).backward()
        scaling.step(optimizer)
        scaling.update()
        optimizer.zero_grad()
        did["iterations"] += 1
        did["optimizer_steps"] += number % 3 != 0


def lbfgs():
    """An optimizer that calls the loss several times in each step."""
    search = torch.optim.LBFGS(model.parameters(), max_iter=4)
    for inputs, labels in batches():

        def closure(inputs=inputs, labels=labels):
            search.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), labels)
            loss.backward()
            return loss

        search.step(closure)
        did["iterations"] += 1
        did["optimizer_steps"] += 1


def evaluation():
    """Validation before, inside and after the training."""
    held_out = DataLoader(data, batch_size=40)
    evaluate(held_out)
    for _ in range(3):
        for number, (inputs, labels) in enumerate(batches()):
            train(inputs, labels)
            if number % 15 == 14:
                evaluate(held_out)


def no_loader():
    for _ in range(50):
        train(torch.randn(4, 8), torch.randn(4, 1))


def ranges():
    """Batches are asked for inside a range of the script's own, which is open at every boundary."""
    batch = iter(batches())
    for _ in range(60):
        with torch.profiler.record_function("everything"), torch.profiler.record_function("data"):
            inputs, labels = next(batch)
        train(inputs, labels)


class Stream(IterableDataset):
    def __iter__(self):
        for _ in range(60):
            yield torch.randn(8), torch.randn(1)


def iterable():
    for inputs, labels in DataLoader(Stream(), batch_size=1):
        train(inputs, labels)


def zipped():
    """Two loaders side by side, as in domain adaptation."""
    for (inputs, labels), (_others, _) in zip(batches(), batches(), strict=True):
        train(inputs, labels)


def recreated():
    """A loader made anew in each epoch of four batches."""
    for _ in range(12):
        for inputs, labels in batches(size=60):
            train(inputs, labels)


def full_batch():
    """One batch is the epoch."""
    for _ in range(50):
        for inputs, labels in batches(size=240):
            train(inputs, labels)


def few():
    for inputs, labels in batches(size=80):
        train(inputs, labels)


def workers():
    """Forked workers are started anew while the window is open."""
    for _ in range(8):
        for inputs, labels in batches(size=60, num_workers=1):
            train(inputs, labels)


def own_steps():
    """The script counts its steps with a profiler that never records."""
    idle = torch.profiler.profile(schedule=torch.profiler.schedule(wait=1000, warmup=1, active=1))
    with idle:
        for inputs, labels in batches():
            train(inputs, labels)
            idle.step()


def records(first, last):
    """The script's own profiler over the iterations first to last; says how many events it saw."""
    own = torch.profiler.profile()
    for number, (inputs, labels) in enumerate(batches()):
        if number == first:
            own.start()
        train(inputs, labels)
        if number == last:
            own.stop()
            did["own_backwards"] = sum(one.count for one in own.key_averages() if one.key == "MseLossBackward0")
            did["own_expected"] = last - first + 1


def in_backward():
    """The optimizer steps inside the backward, from a hook of the last gradient."""
    last = next(iter(model.parameters()))

    def hook(_parameter):
        optimizer.step()
        optimizer.zero_grad()
        did["optimizer_steps"] += 1

    last.register_post_accumulate_grad_hook(hook)
    for inputs, labels in batches():
        train(inputs, labels, step=False)


def by_hand():
    """No optimizer, no loader: only a time window is possible."""
    weight = torch.randn(8, 1, requires_grad=True)
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        (torch.randn(4, 8) @ weight).pow(2).mean().backward()
        with torch.no_grad():
            weight -= 0.01 * weight.grad
            weight.grad = None


def inference():
    """Batches without a backward: nothing here is training."""
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        evaluate(batches())


if __name__ == "__main__":
    name, *numbers = sys.argv[1:]
    globals()[name](*map(int, numbers))
    print(json.dumps(did))
