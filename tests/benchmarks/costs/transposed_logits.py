"""What the cross entropy takes of logits whose classes are the second dimension, but lie side by side in memory.

    python tests/benchmarks/costs/transposed_logits.py

Of logits (samples, places, classes) that a linear layer computed and `transpose(1, 2)` moved, and of those that a
convolution in channels-last computed: `F.cross_entropy(logits, targets)` against
`F.cross_entropy(logits.movedim(1, -1).flatten(0, -2), targets.flatten())`; both with the layer and the backward pass,
in turns; medians. Prints, for each shape and number of threads, the time that is saved as a share of that of the loss
alone, with its backward pass. It may be more than all of it: the layer's gradients are computed from gradients in
another order, too. Then the middle four fifths by kind and number of classes. Measure on a machine that does nothing
else.
"""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict

import torch
import torch.nn.functional as F  # noqa: N812
from copied_matrices import TURNS, took

_WIDTH = 64
TOKENS = [
    (samples, places, classes)
    for samples, places, classes in itertools.product((4, 32), (16, 64, 256), (64, 512, 4096, 32768))
    if samples * places * classes <= 1 << 25
]
PICTURES = [
    (samples, side, classes)
    for samples, side, classes in itertools.product((4, 16), (16, 32, 64), (16, 32, 64, 150, 512))
    if samples * side * side * classes <= 1 << 23
]


def saved(layer: torch.nn.Module, given: torch.Tensor, pictures: bool) -> float:
    """The share of the loss that goes."""

    def logits() -> torch.Tensor:
        found: torch.Tensor = layer(given)
        return found if pictures else found.transpose(1, 2)

    def flat(of: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(of.movedim(1, -1).flatten(0, -2), targets.flatten())

    known = logits().detach().requires_grad_()
    assert known.stride(1) == 1
    targets = torch.randint(known.shape[1], (known.shape[0], *known.shape[2:]))
    torch.testing.assert_close(F.cross_entropy(known, targets), flat(known))
    every = [given, *layer.parameters()]
    ways = [
        (lambda: F.cross_entropy(logits(), targets), every),
        (lambda: flat(logits()), every),
        (lambda: F.cross_entropy(known, targets), [known]),
    ]
    times = max(1, int(2e-3 / took(*ways[0], 1)))
    turns = [[took(*way, times) for way in ways] for _ in range(TURNS)]
    slow, fast, alone = (statistics.median(turn[at] for turn in turns) for at in range(3))
    return (slow - fast) / alone


def of_tokens(samples: int, places: int, classes: int) -> float:
    """Of a linear layer."""
    hidden = torch.randn(samples, places, _WIDTH, requires_grad=True)
    return saved(torch.nn.Linear(_WIDTH, classes), hidden, False)


def of_pictures(samples: int, side: int, classes: int) -> float:
    """Of a convolution."""
    layer = torch.nn.Conv2d(_WIDTH, classes, 1).to(memory_format=torch.channels_last)
    given = torch.randn(samples, _WIDTH, side, side).to(memory_format=torch.channels_last)
    return saved(layer, given.requires_grad_(), True)


def main() -> None:
    """The table."""
    shares: dict[tuple[str, int], list[float]] = defaultdict(list)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for kind, of, shapes in (("tokens", of_tokens, TOKENS), ("pictures", of_pictures, PICTURES)):
            for shape in shapes:
                share = of(*shape)
                shares[kind, shape[-1]].append(share)
                print(threads, kind, shape, f"{share:.2f}", flush=True)
    for (kind, classes), found in shares.items():
        ends = statistics.quantiles(found, n=10, method="inclusive")
        print(f"{kind} {classes}: {ends[0]:.2f} to {ends[-1]:.2f}, n = {len(found)}")


if __name__ == "__main__":
    main()
