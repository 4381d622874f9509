"""Uneven exchanges: the sums against sums by hand, and a recorded job whose one uneven exchange costs nothing."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from advisor.api import Example
from advisor.computed import Computed
from advisor.engine.ask_rules import apply
from advisor.engine.registry import load_rules
from advisor.ranks.rank_facts import RankFacts
from advisor.ranks.ranks import Ranks
from advisor.testing import computed
from advisor.trace.read.load import load

DLRM = Path(__file__).parents[2].parent / "shared" / "traces" / "dlrm_8ranks_v100"
RULE = load_rules().by_id()["uneven-exchanges"]


def uneven(ranks: Ranks, min_times: float = 1.3):
    return importlib.import_module("advisor.rules.distributed._exchanges").uneven(ranks, min_times)


def test_sums_of_the_drawn_job() -> None:
    """Two exchanges a step of 3 ms with parts of 500 and 1,500; before the second, rank 0 waits 8 ms for rank 1."""
    found = uneven(computed(RULE.examples[0]).get(Ranks))
    assert (found.exchanges, found.of, found.most, found.steady) == (2, 2, 1, True)
    assert found.times == pytest.approx(1500 / 1000)
    assert found.sending_us == pytest.approx(2 * 3000 * (1 - 1000 / 1500))
    assert found.waiting_us == pytest.approx(8000 / 2)


def test_waiting_for_a_rank_with_less_is_not_for_its_numbers() -> None:
    drawn = next(one for one in RULE.examples if "the one that waits" in one.title)
    assert uneven(computed(drawn).get(Ranks)).waiting_us == 0


def test_a_rank_that_is_held_up_once_hides_no_uneven_parts() -> None:
    """Rank 0 has a third of the tokens, and in one of four steps is late by more than it waits in the other three."""
    drawn = importlib.import_module("advisor.rules.distributed.uneven_exchanges")._drawn
    held_up = drawn([500] * 4, [4, 4, 40, 4], 40)
    job = Example("", held_up, None, others=(drawn([1500] * 4, [12] * 4, 40),))
    found = uneven(computed(job).get(Ranks))
    assert found.waiting_us == pytest.approx(3 * 8000 / 2 / 4)


@pytest.mark.skipif(not DLRM.exists(), reason="the recorded job of eight ranks is not beside this checkout")
def test_an_uneven_exchange_that_costs_nothing_is_no_finding() -> None:
    files = sorted(DLRM.glob("*.gz")) or sorted(DLRM.iterdir())
    known = [Computed(trace=load(file)) for file in files]
    ranks = Ranks.of(range(len(files)), [one.get(RankFacts) for one in known], 0)
    found = uneven(ranks)
    assert found.exchanges == 1
    # Look-ups of one rank's tables: what each rank receives, as its own kernels say.
    sizes = [_largest_gap(one) for one in known]
    assert found.most == sizes.index(max(sizes))
    assert found.times == pytest.approx(max(sizes) / (sum(sizes) / len(sizes)))
    assert apply(RULE, Computed(trace=load(files[0]), ranks=ranks), {}).status == "clear"


def _largest_gap(known: Computed) -> int:
    """Elements received in the exchange of a rank whose numbers of sent and received elements differ."""
    from advisor.ranks.collectives import Talks

    talks = known.get(Talks)
    return next(int(got) for gave, got in zip(talks.sent, talks.received, strict=True) if gave != got)
