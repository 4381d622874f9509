"""One child of multiprocessing's fork server does what the first argument says; the second is what the server loads.

train, fail, leave, work (no training), nested (trains in a child of that child's own, from the same server).
"""

import multiprocessing
import sys

import torch

CONTEXT = multiprocessing.get_context("forkserver")


def train():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8)).pow(2).mean()
        loss.backward()
        optimizer.step()
    print(loss.item().hex(), flush=True)


def child(what):
    if what == "work":
        print(torch.arange(4).sum().item(), flush=True)
    elif what == "nested":
        run("train")
    else:
        train()
    if what == "fail":
        raise ValueError("the child fails")
    if what == "leave":
        sys.exit(3)


def run(what):
    process = CONTEXT.Process(target=child, args=(what,))
    process.start()
    process.join()
    return process.exitcode


def load_script_ahead():
    """As newer versions of Python do: the fork server imports the script itself before it forks."""
    from multiprocessing import spawn

    known = spawn.get_preparation_data

    def prepared(name):
        data = known(name)
        return {**data, "main_path": data["init_main_from_path"]}

    spawn.get_preparation_data = prepared


def main(what, ahead):
    if ahead == "script":
        load_script_ahead()
    else:
        CONTEXT.set_forkserver_preload(["torch"] if ahead == "torch" else [])
    sys.exit(run(what))


if __name__ == "__main__":
    main(*sys.argv[1:])
