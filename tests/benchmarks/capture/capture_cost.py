"""What capture costs a training script outside its window: CPU time inside our listeners, as a share of the step.

    python tests/benchmarks/capture/capture_cost.py

Every listener is timed by the thread's CPU clock over thousands of calls, as often as one step calls it (one batch
asked for and given, one backward, one optimizer step, the fetcher's two), in the phase in which a script spends its
life (after the window) and in the un-profiled timing phase. The goal is 1 % of the step, for steps of 5, 50, 500 ms.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from advisor.capture.inside import session
from advisor.capture.inside.steps import phases

STEPS, ROUNDS = 2000, 7


def loop(steps: int) -> float:
    """CPU µs per step of a loop that does what listeners hear, and as little as possible beside it."""
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    loader = DataLoader(TensorDataset(torch.zeros(steps, 1)), batch_size=1)
    begun = time.thread_time_ns()
    for (batch,) in loader:
        model(batch).sum().backward()
        optimizer.step()
    return (time.thread_time_ns() - begun) / 1e3 / steps


def listeners(heard: session.Session, steps: int) -> float:
    """CPU µs per step inside the listeners alone, called as torch calls them."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.0)
    iterator = iter(DataLoader(TensorDataset(torch.zeros(2, 1)), batch_size=1))
    fetcher: Any = iterator._dataset_fetcher
    engine: Any = type(torch.autograd.Variable)
    begun = time.thread_time_ns()
    for number in range(1, steps + 1):
        iterator._profile_name  # noqa: B018 - what __next__ reads
        fetcher.auto_collation  # noqa: B018
        fetcher.collate_fn  # noqa: B018
        iterator._num_yielded = number
        engine._execution_engine.fget(torch.autograd.Variable)
        heard._stepping()
        heard._stepped(optimizer)
    return (time.thread_time_ns() - begun) / 1e3 / steps


def main() -> None:
    """Prints the table."""
    torch.set_num_threads(1)
    bare_us = [loop(STEPS) for _ in range(ROUNDS)]
    heard = session.Session({"folder": tempfile.mkdtemp(), "lines": False})
    heard.begin()
    loop(50)
    assert heard.phases is not None
    names = {"after the window": phases.DONE, "un-profiled timing": phases.AFTER}
    costs: dict[str, list[float]] = {name: [] for name in names}
    heard_us = []
    for _ in range(ROUNDS):  # in turn, so that a slow minute of the machine is in all of them
        for name, phase in names.items():
            heard.phases.phase = phase
            heard.parts.on = phase == phases.AFTER
            heard.phases.after.clear()
            heard.phases.unprofiled_parts.clear()
            costs[name].append(listeners(heard, STEPS))
        heard.phases.phase = phases.DONE
        heard.parts.on = False
        heard_us.append(loop(STEPS))
    heard.live = False
    rows = [(name, statistics.median(found)) for name, found in costs.items()]
    print(
        f"smallest loop: {statistics.median(bare_us):.1f} µs CPU per step bare, {statistics.median(heard_us):.1f} heard"
    )
    print(f"{'phase':<20} {'µs per step':>12} " + " ".join(f"{f'of {ms} ms':>10}" for ms in (5, 50, 500)))
    for name, cost_us in rows:
        shares = " ".join(f"{cost_us / (1e3 * ms):>10.4%}" for ms in (5, 50, 500))
        print(f"{name:<20} {cost_us:>12.2f} {shares}")


if __name__ == "__main__":
    main()
