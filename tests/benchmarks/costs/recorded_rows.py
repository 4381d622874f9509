"""What recording ops costs within a step, and how well that tells which of its work the profiler slowed.

    python tests/benchmarks/costs/recorded_rows.py [TRAININGS] [SEED] > rows.jsonl 2> kineto.log
    python tests/benchmarks/costs/recorded_rows.py --table rows.jsonl …

A training is a loop over short ops (twelve kinds, 8 to 96 turns) and a network (five kinds), each with its own backward
pass, drawn at random. 45 steps without the profiler and 15 with it alternate in three blocks; a clock around each half
tells what it takes in both. The table prints what a row was lengthened by, and how far three estimates of the loop's
share of the un-profiled time are from the measured one: as if all work had been slowed alike, as if every row had been
slowed alike, and by the weights of `advisor/analyses/step/step_parts.py`. Measure on a machine that does nothing else.
"""

from __future__ import annotations

import itertools
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile, record_function

Loop = Callable[[Tensor, Tensor], Tensor]
# The halves of a step, as its ranges are called: forward and backward pass of the loop and of the network.
HALVES = ("loop", "network", "loop back", "network back")
BLOCKS, PLAIN, PROFILED = 3, 15, 6
# As in constants.toml: µs of a row in a loop, and what is added from how many µs for each row on.
SHORT_US, COLD_US, COLD_AFTER_US, OFF = 0.55, 3.0, 25.0, 0.3


def _mean(parts: Iterator[Tensor]) -> Tensor:
    return torch.stack(list(parts)).mean()


def _recurrence(x: Tensor, y: Tensor) -> Tensor:
    state = x[0]
    for part in y:
        state = torch.logsumexp(state.unsqueeze(-1) * 0.1 + part.unsqueeze(-2), -1)
    return state.mean()


def _moving_average(x: Tensor, y: Tensor) -> Tensor:
    for mine, other in zip(x.unbind(0), y.unbind(0), strict=True):
        mine.detach().mul_(0.99).add_(other.detach(), alpha=0.01)
    return x.sum() * 0


def _read(x: Tensor, y: Tensor) -> Tensor:
    total = 0.0
    for a, b in zip(x, y, strict=True):
        total += float(a.detach().max()) * 0.1 + b.detach()[0, 0].item()
    return x.sum() * total


def _masked(x: Tensor, _y: Tensor) -> Tensor:
    kind = torch.arange(x.shape[1]) % 7
    return _mean(part[kind == index % 7].mean(dim=0).sum() for index, part in enumerate(x))


def _with_python(x: Tensor, _y: Tensor) -> Tensor:
    found = {}
    for index, part in enumerate(x):
        often = sum(number * number for number in range(40))
        found[index] = (part * often).sum() / (often + 1)
    return torch.stack(list(found.values())).sum()


def _normal(a: Tensor, b: Tensor) -> Tensor:
    return torch.distributions.Normal(a, b.abs() + 1, validate_args=False).log_prob(b).mean()


LOOPS: dict[str, Loop] = {
    "squares": lambda x, y: _mean(((a - b) ** 2).mean() for a, b in zip(x, y, strict=True)),
    "indices": lambda x, y: _mean(((x[i] - y[i]) ** 2).mean() for i in range(len(x))),
    "recurrence": _recurrence,
    "masks": _masked,
    "moving average": _moving_average,
    "choices": lambda x, y: _mean(torch.where(a > 0, a * b, b.clamp(min=0)).sum() for a, b in zip(x, y, strict=True)),
    "spectra": lambda x, y: _mean(torch.fft.rfft(a.flatten()[:32]).abs().sum() for a in x),
    "norms": lambda x, y: _mean(functional.relu(functional.layer_norm(a @ a.mT, (len(a),))).sum() for a in x),
    "numbers": _read,
    "densities": lambda x, y: _mean(_normal(a, b) for a, b in zip(x, y, strict=True)),
    "parts": lambda x, y: _mean(torch.cat([a, b]).softmax(-1).sum() for a, b in zip(x, y, strict=True)),
    "python": _with_python,
}


def _network(chance: random.Random) -> tuple[str, nn.Module, Tensor]:
    kind = chance.choice(("layers", "wide", "convolutions", "attention", "recurrent"))
    if kind == "layers":
        width = chance.choice((64, 128, 256))
        parts = [part for _ in range(chance.choice((3, 8, 16))) for part in (nn.Linear(width, width), nn.ReLU())]
        return kind, nn.Sequential(*parts), torch.randn(chance.choice((32, 128, 512)), width)
    if kind == "wide":
        parts = [nn.Linear(512, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 512)]
        return kind, nn.Sequential(*parts), torch.randn(chance.choice((128, 512, 2048)), 512)
    if kind == "convolutions":
        width = chance.choice((8, 16, 32))
        parts = [nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width, 3)]
        return kind, nn.Sequential(*parts), torch.randn(chance.choice((8, 16, 32, 64)), 3, 32, 32)
    if kind == "attention":
        width = chance.choice((64, 128))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True, dropout=0.0)
        model = nn.TransformerEncoder(layer, chance.choice((1, 3)), enable_nested_tensor=False)
        return kind, model, torch.randn(16, chance.choice((16, 64)), width)
    width = chance.choice((32, 64))
    return kind, nn.GRU(width, width, batch_first=True), torch.randn(32, 20, width)


def training(chance: random.Random) -> dict[str, Any]:
    """Medians of the halves with and without the profiler, in µs, and their ops as (rows, µs until the next) each."""
    name = chance.choice(list(LOOPS))
    shape = chance.choice((8, 24, 48, 96)), chance.choice((4, 8, 32)), chance.choice((8, 32, 128))
    x, y = torch.randn(shape), torch.randn(shape)
    if name == "recurrence":
        x, y = torch.randn(*shape[:2], 8), torch.randn(*shape[:2], 8)
    weight = nn.Parameter(x)
    kind, model, batch = _network(chance)
    optimizer = torch.optim.SGD([weight, *model.parameters()], 1e-6)
    order = (0, 1) if chance.random() < 0.5 else (1, 0)

    def step(marked: Callable[[str], Any]) -> list[float]:
        took, losses = [0.0] * 4, [weight.sum()] * 2
        optimizer.zero_grad()

        def half(index: int, run: Callable[[], Any]) -> Any:
            began = time.perf_counter()
            with marked(HALVES[index]):
                found = run()
            took[index] = 1e6 * (time.perf_counter() - began)
            return found

        def network() -> Tensor:
            found = model(batch)
            return (found[0] if isinstance(found, tuple) else found).square().mean()

        for index in order:
            losses[index] = half(index, network if index else lambda: LOOPS[name](weight * 1.0, y))
        for index in reversed(order):
            half(2 + index, losses[index].backward)
        optimizer.step()
        return took

    for _ in range(5):
        step(lambda _: nullcontext())
    plain, slowed, ops = [], [], []
    for _ in range(BLOCKS):
        plain += [step(lambda _: nullcontext()) for _ in range(PLAIN)]
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
            slowed += [step(record_function) for _ in range(PROFILED)][1:]
        ops = _ops(recorded.profiler.kineto_results.events())

    def median(steps: Sequence[list[float]]) -> list[float]:
        return [statistics.median(one) for one in zip(*steps, strict=True)]

    return {"loop": name, "network": kind, "plain": median(plain), "profiled": median(slowed), "ops": ops}


def _ops(events: Sequence[Any]) -> list[list[tuple[int, float]]]:
    """For each half the outermost ops of all its runs: rows in each, µs until the next one or the half's end."""
    halves = [[(one.start_ns(), one.end_ns()) for one in events if one.name() == name] for name in HALVES]
    rows = sorted((one.start_ns(), -one.end_ns(), one.start_thread_id()) for one in events if one.name() not in HALVES)
    found = []
    for spans in halves:
        ops: list[tuple[int, float]] = []
        for begin, end in spans:
            inside = [row for row in rows if begin <= row[0] < end]
            threads = [thread for _, _, thread in inside]
            mine = [row for row in inside if row[2] == statistics.mode(threads)] if inside else []
            outer: list[list[int]] = []
            reach = -1
            for start, stop, _ in mine:
                if start >= reach:
                    outer.append([start, 0])
                    reach = -stop
                outer[-1][1] += 1
            starts = [start for start, _ in outer] + [end]
            ops += [(number, (after - start) / 1e3) for (start, number), after in zip(outer, starts[1:], strict=True)]
        found.append(ops)
    return found


def _estimates(training: dict[str, Any]) -> Iterator[tuple[float, float, float, float, float]]:
    """(measured, all work alike, every row alike, by weights, how far that may be off), shares of a pass."""
    for loop, network in ((0, 1), (2, 3)):
        plain, slowed = ([training[name][at] for at in (loop, network)] for name in ("plain", "profiled"))
        rows = [sum(number for number, _ in training["ops"][at]) / PROFILED for at in (loop, network)]
        cost = [
            sum(
                number * (SHORT_US + COLD_US * min(us / number / COLD_AFTER_US, 1.0))
                for number, us in training["ops"][at]
            )
            / PROFILED
            for at in (loop, network)
        ]
        whole, added = sum(plain), sum(slowed) - sum(plain)
        if added <= 0 or min(rows) < 30:
            continue
        known = min(added / sum(cost), 1.0)
        left = [us - known * one for us, one in zip(slowed, cost, strict=True)]
        weighed = left[0] * whole / sum(left)
        ours = slowed[0] - weighed
        yield (
            plain[0] / whole,
            slowed[0] / sum(slowed),
            (slowed[0] - added * rows[0] / sum(rows)) / whole,
            weighed / whole,
            OFF * max(min(ours, added - ours), 0.0) / whole,
        )


def table(trainings: Sequence[dict[str, Any]]) -> None:
    """What rows were lengthened by, by how long they are; and the errors of the estimates."""
    print("| µs recorded for each row of a half | halves | µs added to each: median, 10 to 90 % |\n|---|---|---|")
    halves = []
    for one in trainings:
        for at in range(4):
            rows = sum(number for number, _ in one["ops"][at]) / PROFILED
            if rows >= 30:
                halves.append((one["profiled"][at] / rows, (one["profiled"][at] - one["plain"][at]) / rows))
    for low, high in itertools.pairwise((0, 1.5, 2, 3, 5, 10, 25, 100)):
        added = [us for each, us in halves if low <= each < high]
        if added:
            few, middle, most = np.percentile(added, (10, 50, 90))
            print(f"| {low} to {high} | {len(added)} | {middle:.2f}, {few:.2f} to {most:.2f} |")
    found = np.array([one for each in trainings for one in _estimates(each)])
    truth, off = found[:, 0], found[:, 4]
    print(f"\n| estimate, of {len(found)} passes | error in points: median, 5 to 95 % |\n|---|---|")
    for name, column in (("all work alike", 1), ("every row alike", 2), ("by weights", 3)):
        few, middle, most = 100 * np.percentile(found[:, column] - truth, (5, 50, 95))
        print(f"| {name} | {middle:+.1f}, {few:+.1f} to {most:+.1f} |")
    error = abs(found[:, 3] - truth)
    inside, near = (error <= off).mean(), (error <= off + 0.01).mean()
    print(f"\nwithin {200 * off.mean():.1f} points (mean width): {inside:.0%}; with a point more: {near:.0%}")


def main() -> None:
    """Measures, or prints the table of what was measured."""
    if sys.argv[1:2] == ["--table"]:
        lines = [line for path in sys.argv[2:] for line in Path(path).read_text("utf-8").splitlines()]
        table([json.loads(line) for line in lines])
        return
    number, seed = (int(word) for word in (*sys.argv[1:], *("60", "1")[len(sys.argv) - 1 :]))
    chance = random.Random(seed)
    torch.manual_seed(seed)
    for _ in range(number):
        print(json.dumps(training(chance)), flush=True)


if __name__ == "__main__":
    main()
