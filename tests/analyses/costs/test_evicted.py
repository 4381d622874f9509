"""What ops evict from the caches, on drawn steps whose bytes are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from advisor.analyses.costs.evicted import Evicted
from advisor.analyses.costs.price import Price
from advisor.api import Drawing, Ev, Example, constant, draw, edits
from advisor.testing import computed

MB = 250_000  # fp32 numbers
CODE_BYTES = constant("memory.code_bytes").value
SHARE = constant("memory.refilled_share").value


def op(name: str, numbers: int, **args: Any) -> Ev:
    """An op on two tensors of so many numbers: with its result it moves twelve times as many bytes."""
    return Ev(f"aten::{name}", dims=[[numbers], [numbers]], dtypes=["float", "float"], args=args)


def steps(gone: Ev, rest: Ev) -> Drawing:
    """Two steps of 20 ms: 8 ms in an op that may go (G), 10 in ten ops that stay (R)."""
    return draw(
        """
        step   [1                  ][2                  ]
        cpu    [G      ][R        ] [G      ][R        ]
        """,
        us=1000,
        G=gone,
        R=rest,
    )


def saved(drawing: Drawing, name: str) -> tuple[float, float, Evicted]:
    """(µs that an op takes, the most that is saved without it, what is evicted)."""
    known = computed(Example("two steps", drawing, None))
    price = known.get(Price)
    rows = np.flatnonzero(price.ops.events.exactly(name))
    gone = [edits.remove(rows)]
    saving = price.saving(gone, gone, (), "without the op")
    return price.scale.scaled(price.ops.us(rows)), saving.high_us, known.get(Evicted)


def test_the_rest_fetches_what_it_uses_after_an_op_that_streams_through_memory() -> None:
    took_us, high_us, found = saved(steps(op("mul", 16 * MB), op("add", MB // 8)), "aten::mul")
    used = 12 * MB / 8 / 2  # each byte twice
    assert high_us - took_us == pytest.approx((used + CODE_BYTES) / found.bytes_per_us)


def test_little_that_is_written_evicts_little() -> None:
    took_us, high_us, found = saved(steps(op("mul", MB // 100), op("add", MB)), "aten::mul")
    assert high_us - took_us == pytest.approx(12 * MB / 100 / found.bytes_per_us)


def test_a_step_that_uses_more_than_the_last_cache_holds_evicts_its_own_data() -> None:
    took_us, high_us, found = saved(steps(op("mul", 16 * MB), op("add", 64 * MB)), "aten::mul")
    assert 4 * found.cache_bytes < 12 * 64 * MB
    assert high_us - took_us == pytest.approx(CODE_BYTES / found.bytes_per_us)


@pytest.mark.parametrize(
    "gone",
    [
        Ev("aten::mul"),  # no shapes
        Ev("aten::unheard_of", dims=[[16 * MB]], dtypes=["float"]),
        Ev("aten::mul", dims=[[16 * MB]], dtypes=["a type of others"]),
        Ev("aten::view", dims=[[16 * MB]], dtypes=["float"]),
    ],
)
def test_nothing_is_evicted_where_no_bytes_are_known(gone: Ev) -> None:
    took_us, high_us, _ = saved(steps(gone, op("add", MB)), gone.name)
    assert high_us == pytest.approx(took_us)


def test_the_rest_waits_for_no_more_than_a_part_of_its_time() -> None:
    known = computed(Example("two steps", steps(op("mul", 16 * MB), op("add", MB)), None))
    found = known.get(Evicted)
    everything = np.ones(len(found.bytes))
    assert found.fetched_us(everything, 100.0) == pytest.approx(SHARE * 100)
    assert found.refill_us(100.0) == pytest.approx(SHARE * 100)
    assert found.fetched_us(0 * everything, 100.0) == 0


@pytest.mark.parametrize(("number", "tensors"), [(7, 1), (5, 2)])
def test_memory_of_a_result_is_used_again_unless_the_backward_pass_needs_it(number: int, tensors: int) -> None:
    """Two equal ops: what they write lies in the same memory, or in two tensors that are kept for the node."""
    drawing = draw(
        """
        step   [1                ][2                ]
        cpu    [K  ][K  ] [B ]    [K  ][K  ] [B ]
        """,
        us=1000,
        B=Ev("autograd::engine::evaluate_function: MulBackward0", args={"Sequence number": 5, "Fwd thread id": 1}),
        K=op("mul", MB, **{"Sequence number": number, "Fwd thread id": 0}),
    )
    found = computed(Example("two steps", drawing, None)).get(Evicted)
    assert found.moved_bytes(np.ones(len(found.bytes))) == pytest.approx(tensors * 12 * MB)


def test_an_op_of_others_counts_once_and_a_share_of_it_as_a_share() -> None:
    zeros = {"dims": [[MB]], "dtypes": ["float"]}
    drawing = draw(
        """
        step   [1        ][2        ]
        cpu    [Z       ] [Z       ]
        cpu     [F     ]   [F     ]
        """,
        us=1000,
        Z=Ev("aten::zero_", **zeros),
        F=Ev("aten::fill_", **zeros),
    )
    found = computed(Example("two steps", drawing, None)).get(Evicted)
    assert found.moved_bytes(np.ones(len(found.bytes))) == pytest.approx(4 * MB)
    assert found.moved_bytes(np.full(len(found.bytes), 0.25)) == pytest.approx(MB)


def test_what_comes_instead_evicts_as_much_where_it_goes_through_as_many_bytes() -> None:
    known = computed(Example("two steps", steps(op("mul", 16 * MB), op("add", MB)), None))
    price = known.get(Price)
    gone = [edits.remove(np.flatnonzero(price.ops.events.exactly("aten::mul")))]
    fewer, as_many = (price.divided(gone, gone, (), "without the op", evicts=one).high_us for one in (True, False))
    assert fewer > as_many == pytest.approx(price.scale.scaled(price.ops.us(gone[0].rows)))
