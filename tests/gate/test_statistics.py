"""The gate's statistics against independent computations, and its error rates on simulated noise."""

from __future__ import annotations

import importlib.util
import itertools
import math
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.gate import sequential, signed_rank, student
from advisor.gate.sequential_design import SequentialDesign

# Published table of Student's t, one-sided; four digits.
TABLE = {
    (0.95, 1): 6.3138,
    (0.99, 1): 31.8205,
    (0.975, 5): 2.5706,
    (0.99, 5): 3.3649,
    (0.995, 5): 4.0321,
    (0.95, 9): 1.8331,
    (0.99, 9): 2.8214,
    (0.995, 15): 2.9467,
    (0.999, 15): 3.7328,
    (0.9995, 30): 3.6460,
    (0.975, 120): 1.9799,
}


@pytest.mark.parametrize(("probability", "freedom"), sorted(TABLE))
def test_quantiles_match_the_published_table(probability: float, freedom: int) -> None:
    assert student.quantile(probability, freedom) == pytest.approx(TABLE[probability, freedom], abs=6e-5)
    assert student.quantile(1 - probability, freedom) == pytest.approx(-TABLE[probability, freedom], abs=6e-5)


@pytest.mark.parametrize("freedom", [1, 2, 3, 5, 9, 15, 31, 63, 199])
@pytest.mark.parametrize("probability", [0.5, 0.6, 0.95, 0.99, 0.995, 1 - 0.01 / 3, 0.9999])
def test_quantiles_match_scipy(probability: float, freedom: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    assert student.quantile(probability, freedom) == pytest.approx(
        stats.t.ppf(probability, freedom), rel=1e-9, abs=1e-9
    )


def test_the_distribution_of_one_and_two_degrees_has_a_closed_form() -> None:
    for value in (-30.0, -1.7, 0.0, 0.3, 2.0, 55.0):
        assert student.distribution(value, 1) == pytest.approx(0.5 + math.atan(value) / math.pi, abs=1e-12)
        assert student.distribution(value, 2) == pytest.approx(0.5 + value / (2 * math.sqrt(2 + value**2)), abs=1e-12)


@pytest.mark.parametrize("bad", [0.0, 1.0, -1.0, 2.0])
def test_no_quantile_outside_the_open_interval(bad: float) -> None:
    with pytest.raises(ValueError, match="no quantile"):
        student.quantile(bad, 5)


@pytest.mark.parametrize("count", [9, 10, 12])
def test_signed_rank_bounds_miss_as_often_as_full_enumeration_says(count: int) -> None:
    alpha = 0.01 / 3
    sizes = np.random.default_rng(count).exponential(1.0, count)
    missed = [
        signed_rank.bounds(np.array(signs) * sizes, alpha)[0] > 0
        for signs in itertools.product((-1.0, 1.0), repeat=count)
    ]
    # All 2**n sign patterns are equally likely under no change; the bound may miss in at most alpha of them,
    # and one more pattern would be too many.
    assert np.mean(missed) <= alpha
    assert np.mean(missed) > alpha - 12 / 2**count


def test_signed_rank_bound_needs_enough_values() -> None:
    assert not signed_rank.possible(8, 0.01 / 3)
    assert signed_rank.possible(9, 0.01 / 3)
    with pytest.raises(ValueError, match="cannot reach"):
        signed_rank.bounds(np.ones(8), 0.01 / 3)


ratios = st.lists(st.floats(-0.5, 0.5), min_size=6, max_size=20)


@settings(deadline=None)
@given(ratios)
def test_the_centre_lies_between_the_extremes_and_shifts_with_the_data(values: list[float]) -> None:
    data = np.array(values)
    centre = signed_rank.hodges_lehmann(data)
    assert data.min() <= centre <= data.max()
    assert signed_rank.hodges_lehmann(data + 1.0) == pytest.approx(centre + 1.0)
    pairs = [(a + b) / 2 for i, a in enumerate(values) for b in values[i:]]
    assert centre == pytest.approx(float(np.median(pairs)))


@settings(deadline=None)
@given(ratios)
def test_slower_and_faster_are_judged_alike(values: list[float]) -> None:
    design = SequentialDesign()
    forward, backward = sequential.look(values, design), sequential.look([-v for v in values], design)
    assert math.log1p(forward.low) == pytest.approx(-math.log1p(backward.high), abs=1e-9)
    assert math.log1p(forward.change) == pytest.approx(-math.log1p(backward.change), abs=1e-9)


@settings(deadline=None)
@given(ratios)
def test_no_pass_where_the_tolerance_could_not_have_been_detected(values: list[float]) -> None:
    design = SequentialDesign()
    result = sequential.look(values, design)
    if result.decision == "pass":
        assert result.detectable <= design.tolerance
        assert result.high < design.tolerance
    if result.decision == "regression":
        assert result.low > 0
        assert result.change > design.margin


def test_identical_pairs_decide_at_once() -> None:
    assert sequential.run(lambda: 0.0, SequentialDesign()).decision == "pass"
    slow = sequential.run(lambda: math.log(1.1), SequentialDesign())
    assert (slow.decision, slow.pairs, round(slow.change, 6)) == ("regression", 6, 0.1)


def test_a_small_regression_is_repeated_and_must_be_seen_twice() -> None:
    series = iter([0.025] * 6 + [0.025] * 6)
    twice = sequential.run(lambda: next(series), SequentialDesign())
    assert (twice.decision, twice.confirmed, twice.pairs) == ("regression", True, 12)
    series = iter([0.025] * 6 + [0.0] * 16)
    once = sequential.run(lambda: next(series), SequentialDesign())
    assert once.confirmed is False
    assert once.decision == "pass"  # on all pairs the bound still excludes the tolerance


def test_an_open_gate_says_what_would_decide() -> None:
    rng = np.random.default_rng(7)
    result = sequential.run(lambda: float(rng.normal(0.0, 0.08)), SequentialDesign())
    assert result.decision == "inconclusive"
    assert result.detectable > 0.05
    assert result.further_pairs
    # As many pairs of exactly that centre and noise do decide, and not many fewer.
    more = rng.normal(0.0, 1.0, 16 + result.further_pairs)
    more = (more - more.mean()) / more.std(ddof=1) * math.log1p(result.noise)
    more += math.log1p(result.change) - signed_rank.hodges_lehmann(more)
    decided = sequential.look(list(more), SequentialDesign())
    assert decided.detectable <= 0.05 or decided.low > 0
    assert sequential.look(list(more[: 16 + result.further_pairs // 2]), SequentialDesign()).decision == "inconclusive"


def test_hopeless_noise_stops_after_the_self_test() -> None:
    def never() -> float:
        raise AssertionError("no pair may be measured")

    result = sequential.run(never, SequentialDesign(), [0.6, -0.5, 0.4, -0.7])
    assert (result.decision, result.pairs, result.further_pairs) == ("inconclusive", 0, 0)
    assert result.detectable > 0.25


@pytest.fixture(scope="module")
def simulation() -> ModuleType:
    """The simulator of the benchmarks."""
    path = Path(__file__).parents[1] / "benchmarks" / "gate" / "gate_simulation.py"
    spec = importlib.util.spec_from_file_location("gate_simulation", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kind", ["gaussian", "t3", "outliers", "ar1", "drift", "bimodal", "two-points", "ties"])
def test_error_rates_on_simulated_noise(simulation: ModuleType, kind: str) -> None:
    gates = 250
    for sigma in (0.03, 0.10):
        same = simulation.simulate(kind, sigma, 0.0, gates, seed=11)
        # At a true rate of 1 % seven or more false alarms of 250 have a chance of 1 %; the seed is fixed.
        assert same["regression"] * gates < 7
        assert same["silent_passes"] == 0
    slower = simulation.simulate(kind, 0.03, 0.05, gates, seed=12)
    assert slower["regression"] >= 0.93
    assert slower["pass"] <= 0.01
