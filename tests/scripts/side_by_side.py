"""Processes that train side by side on shared weights, without a process group; the first argument is how they start.

A second argument says that this process trains itself, too. `read HOW` trains nothing and reads from a loader whose
workers start so; preloaded: from a fork server that has loaded torch already.
"""

import json
import sys

import torch
import torch.multiprocessing as mp
from torch import nn


def train(model, iterations, seed):
    torch.manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(iterations):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).pow(2).mean().backward()
        optimizer.step()


class Gradients(torch.utils.data.Dataset):
    """Samples that are gradients: workers of a loader run backward passes, and train nothing."""

    def __len__(self):
        return 80

    def __getitem__(self, index):
        point = torch.full((8,), float(index), requires_grad=True)
        point.pow(2).sum().backward()
        return point.grad


def read(how):
    context = mp.get_context("forkserver" if how == "preloaded" else how)
    if how == "preloaded":
        context.set_forkserver_preload(["torch"])
    loader = torch.utils.data.DataLoader(Gradients(), batch_size=4, num_workers=2, multiprocessing_context=context)
    total = sum(batch.sum() for batch in loader)
    print(json.dumps({"codes": [], "total": float(total)}))


def main(how, also=""):
    torch.set_num_threads(1)
    if how == "read":
        read(also)
        return
    model = nn.Linear(8, 1)
    model.share_memory()
    if also:
        train(model, 60, 7)
    context = mp.get_context(how)
    children = [context.Process(target=train, args=(model, 60, number)) for number in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    print(json.dumps({"codes": [child.exitcode for child in children]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
