"""What `nn.LSTM` over a sequence takes of a loop over its time steps; the same for `nn.GRU` and `nn.RNN`.

    python tests/benchmarks/costs/recurrent_cells.py

A loop calls `nn.LSTMCell`, or `nn.LSTM` itself, for each time step. Forward and backward pass, states stacked;
medians of three times five runs each, both forms in turns. Prints for each kind, shape and number of threads the share
of the loop's time that the layer takes, and the recorded time of one call in the loop (one profile of two runs).
Measure on a machine that does nothing else.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

KINDS = (
    ("aten::lstm_cell", nn.LSTMCell, nn.LSTM),
    ("aten::gru_cell", nn.GRUCell, nn.GRU),
    ("aten::rnn_tanh_cell", nn.RNNCell, nn.RNN),
    ("aten::lstm", nn.LSTM, nn.LSTM),
    ("aten::gru", nn.GRU, nn.GRU),
)
# Samples, time steps, hidden width; the input is half as wide.
SHAPES = [*itertools.product((8, 32, 128), (24, 96), (32, 128)), (8, 24, 512), (32, 24, 512), (128, 24, 512)]
RUNS, TURNS = 5, 3


def in_a_loop(cell: nn.Module, x: torch.Tensor) -> None:
    """One pass forward and backward, a call for each time step."""
    state, states = None, []
    for at in range(x.shape[1]):
        if isinstance(cell, nn.RNNBase):
            out, state = cell(x[:, at : at + 1], state)
            states.append(out)
            continue
        state = cell(x[:, at], state)
        states.append(state[0] if isinstance(state, tuple) else state)
    torch.stack(states, 1).sum().backward()


def at_once(layer: nn.Module, x: torch.Tensor) -> None:
    """The same with the layer."""
    layer(x)[0].sum().backward()


def median_s(call: Callable[[], None]) -> float:
    """Seconds of a call."""
    times = []
    for _ in range(RUNS):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def call_us(name: str, call: Callable[[], None]) -> float:
    """Recorded time of one op of that name, µs."""
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        call()
        call()
    return statistics.median(event.cpu_time_total for event in recorded.events() if event.name == name)


def main() -> None:
    """The table."""
    for threads, (name, cell_of, layer_of), shape in itertools.product((1, 2), KINDS, SHAPES):
        torch.set_num_threads(threads)
        samples, steps, width = shape
        torch.manual_seed(0)
        x = torch.randn(samples, steps, width // 2, requires_grad=True)
        layer = layer_of(width // 2, width, batch_first=True)
        cell = layer if cell_of is layer_of else cell_of(width // 2, width)
        forms = (lambda: in_a_loop(cell, x), lambda: at_once(layer, x))  # noqa: B023
        for form in forms:
            form()
        turns = [tuple(median_s(form) for form in forms) for _ in range(TURNS)]
        loop, once = (statistics.median(turn[at] for turn in turns) for at in (0, 1))
        took = call_us(name, forms[0])
        print(
            f"{threads} {name[6:]:14} {shape!s:15} {once / loop:.2f} of {1e3 * loop:.2f} ms; a call {took:.0f} µs",
            flush=True,
        )


if __name__ == "__main__":
    main()
