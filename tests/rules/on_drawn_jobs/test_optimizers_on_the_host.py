"""Which copies and waits belong to an update on the host: drawn by hand."""

from __future__ import annotations

import json

import pytest

from advisor.computed import Computed
from advisor.drawing.events import Ev
from advisor.drawing.timeline import Drawing, draw
from advisor.rules.shared._host_updates import HostUpdate, offloaded
from advisor.trace.read.load import read_bytes

# Gradients of two batches go to the host (G, D), one after another, before the optimizer (O) works there.
_TWICE = """
    step   [1                                                ][2                                                ]
    cpu    [F ][G ]  [F ][G ][S       ][O       ]  [T ][S   ] [F ][G ]  [F ][G ][S       ][O       ]  [T ][S   ]
    gpu 7   [K ]      [K ]                          [U     ]   [K ]      [K ]                          [U     ]
    gpu 13      [D   ]    [D       ]                               [D   ]    [D       ]
    """


def update(drawn: Drawing) -> HostUpdate:
    return Computed(trace=read_bytes(json.dumps(dict(drawn)).encode(), "one.pt.trace.json")).get(HostUpdate)


def test_gradients_go_and_weights_come_back() -> None:
    found = update(offloaded())
    assert len(found.copies) == 4
    assert found.bytes == 2 * (96 << 20)
    # From the last copy to the host to the last one back.
    assert [(end - start) / 1e6 for start, end in found.around.tolist()] == pytest.approx([30, 30], abs=1)


@pytest.mark.parametrize("back", [64 << 20, 32 << 20, 33 << 20])
def test_formats_differ_and_a_batch_may_come_with_them(back: int) -> None:
    assert len(update(offloaded(back)).copies) == 4


@pytest.mark.parametrize("back", [85 << 20, 48 << 20, 1 << 10])
def test_other_copies_are_none_of_them(back: int) -> None:
    found = update(offloaded(back))
    assert len(found.spans)
    assert not len(found.copies)
    assert not len(found.waiting)
    assert found.around.tolist() == found.spans.tolist()


def test_gradients_of_several_batches_are_all_of_one_update() -> None:
    found = update(
        draw(
            _TWICE,
            us=1000,
            device="A100",
            G=Ev("aten::copy_", launches="memcpy"),
            D=Ev("Memcpy DtoH (Device -> Pinned)", "gpu_memcpy", bytes=64 << 20),
            S=Ev("cudaStreamSynchronize", "cuda_runtime"),
            O=Ev("Optimizer.step#DeepSpeedCPUAdam.step", "user_annotation"),
            T=Ev("aten::copy_", launches="memcpy"),
            U=Ev("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", bytes=32 << 20),
        )
    )
    assert len(found.copies) == 6
    # What the host waits for before is none of the update's.
    assert len(found.waiting) == 2
