"""A rank as a small file: it comes back as it was, and what is damaged is named, never more."""

from __future__ import annotations

import json
import random
import zlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec import Struct

from advisor.api import GLOO, NEXT, draw
from advisor.capture.record import Loader, RankRecord, RunRecord, StepTimes
from advisor.engine import engine, reduced_form
from advisor.engine.config import Config
from advisor.engine.rank_files import aligned
from advisor.engine.reduced_form import Origin
from advisor.engine.registry import load_reporter, load_rules
from advisor.errors import InputError
from advisor.trace.read.load import load, read_bytes

DLRM = Path(__file__).parents[2].parent / "shared" / "traces" / "dlrm_8ranks_v100"
STEPS = 50
# The budget of a rank of so many steps.
MOST_BYTES = 200_000


def _drawn(late: int, steps: int = 4) -> Any:
    """A rank whose batches take `late` columns of 1 ms more than another's, with two collectives in each step."""
    lanes = ["step   ", "cpu    ", "cpu 2  "]
    for number in range(1, steps + 1):
        lanes[0] += f"[{number:<29}]"
        lanes[1] += f"[D{' ' * late}][F ][B ]".ljust(31)
        lanes[2] += f"[G ]{' ' * late}      [G{' ' * (14 - late)}]".ljust(31)
    drawing = draw("\n".join(f"    {lane}" for lane in lanes), us=1000, world_size=2, D=NEXT, G=GLOO)
    return read_bytes(json.dumps(dict(drawing)).encode(), "drawn.json")


@pytest.fixture(scope="module")
def results() -> list[Any]:
    rules = engine.rules_of_ranks(load_rules(), Config())
    record = RankRecord(
        world_size=2,
        steps=StepTimes(unprofiled_us=[32_000.5, 31_999.25] * 12),
        loaders=[Loader(batch_size=8)],
        gc_pauses_us=[1.5],
        model={"modules": [{"path": "x"}]},
    )
    given = (engine.RankInput(rank, f"rank{rank}.json", _drawn(8 * rank), record) for rank in range(2))
    return [engine.reduce(one, rules, Config()) for one in given]


def _equal(one: Any, other: Any) -> bool:
    """Whether two values are the same, columns and what holds them included."""
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and bool((one == other).all())
    if isinstance(one, Struct):
        return all(_equal(getattr(one, name), getattr(other, name)) for name in one.__struct_fields__)
    if isinstance(one, dict):
        return list(one) == list(other) and all(_equal(one[key], other[key]) for key in one)
    return bool(one == other)


def test_facts_come_back_to_the_bit(results: list[Any]) -> None:
    for result in results:
        back = reduced_form.decode(reduced_form.encode(result, Origin(0, "t.json")), "x").result
        assert len(result.facts.talks) == 8
        for name in ("labels", "starts_ns", "parts_us", "exposed", "talks", "flops", "lines", "scale", "step_us"):
            assert _equal(getattr(back.facts, name), getattr(result.facts, name)), name
        assert back.facts.record.steps == result.facts.record.steps
        assert back.facts.record.loaders == result.facts.record.loaders
        assert (back.facts.record.gc_pauses_us, back.facts.record.model) == ([1.5], None)
        assert back.summary == result.summary
        assert reduced_form.detail_of(back).timeline == result.detail.timeline


def _report(results: list[Any], formats: tuple[str, ...] = ("json", "html", "markdown", "text")) -> list[str]:
    report = engine.joined(results, load_rules(), Config())
    return [load_reporter(name)(report) for name in formats]


def test_the_report_is_the_same_to_the_byte(results: list[Any]) -> None:
    rules = engine.rules_of_ranks(load_rules(), Config())
    files = [reduced_form.encode(one, Origin(rank, "t.json")) for rank, one in enumerate(results)]
    back = [aligned(reduced_form.decode(data, "x").result, rules) for data in files]
    found = {one["rule"]: one["status"] for one in json.loads(_report(back, ("json",))[0])["outcomes"]}
    assert found["straggling-rank"] == "found"
    assert _report(back) == _report(results)


@pytest.mark.skipif(not DLRM.is_dir(), reason="the real traces do not lie beside this checkout")
def test_the_report_of_eight_real_ranks_is_the_same_to_the_byte() -> None:
    rules = engine.rules_of_ranks(load_rules(), Config())
    given = [engine.RankInput(rank, path.name, load(path)) for rank, path in enumerate(sorted(DLRM.iterdir()))]
    whole = [engine.reduce(one, rules, Config()) for one in given]
    files = [reduced_form.encode(one, Origin(rank, "t.json")) for rank, one in enumerate(whole)]
    assert max(map(len, files)) < 25_000
    assert _report([aligned(reduced_form.decode(data, "x").result, rules) for data in files]) == _report(whole)


def test_fifty_steps_stay_within_the_budget() -> None:
    rules = engine.rules_of_ranks(load_rules(), Config())
    result = engine.reduce(engine.RankInput(0, "t.json", _drawn(8, STEPS)), rules, Config())
    assert result.summary.steps.count == STEPS
    assert len(reduced_form.encode(result, Origin(0, "t.json"))) < MOST_BYTES


def test_the_same_rank_gives_the_same_file(results: list[Any]) -> None:
    data = reduced_form.encode(results[0], Origin(0, "t.json"))
    read = reduced_form.decode(data, "x")
    assert reduced_form.encode(read.result, read.origin) == data


def test_where_it_comes_from_is_told_without_its_values(results: list[Any]) -> None:
    origin = Origin(3, "a b/../t.pt.trace.json.gz", 8, 1, 2, "rules", RunRecord(command=["train.py"]))
    data = reduced_form.encode(results[0], origin)
    assert reduced_form.origin_of(data, "x") == origin
    assert reduced_form.file_name(origin) == "rank00003-a_b_.._t.rank"


def test_a_rule_that_was_not_asked_is_skipped(results: list[Any]) -> None:
    rules = engine.rules_of_ranks(load_rules(), Config())
    one = aligned(results[0], rules[:3])
    again = aligned(one, rules[:5])
    assert [outcome.rule for outcome in again.outcomes] == [rule.id for rule in rules[:5]]
    assert [outcome.status for outcome in again.outcomes[3:]] == ["skipped", "skipped"]
    assert "reduce its trace again" in again.outcomes[3].reason


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not a reduced trace"),
        (b"{}", "not a reduced trace"),
        (reduced_form.MARK + b"9\n", "of version 9, this torch-advisor reads 1"),
        (reduced_form.MARK + b"1\n", "it is truncated"),
        (reduced_form.MARK + b"1\n" + (5).to_bytes(8, "big") + b"abcde" + (0).to_bytes(8, "big"), "damaged"),
        (reduced_form.MARK + b"1\n" + (1 << 62).to_bytes(8, "big") + b"abcde", "it is truncated"),
    ],
)
def test_what_is_no_whole_form_of_this_version_is_named(data: bytes, says: str) -> None:
    with pytest.raises(InputError, match=says) as refusal:
        reduced_form.decode(data, "here.rank")
    assert str(refusal.value).startswith("here.rank: ")
    assert "\n" not in str(refusal.value)


def test_a_form_that_unpacks_to_too_much_is_refused(results: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    data = reduced_form.encode(results[0], Origin(0, "t.json"))
    monkeypatch.setattr(reduced_form, "MOST_BYTES", 1000)
    with pytest.raises(InputError, match="too much"):
        reduced_form.decode(data, "x")


def test_columns_of_unequal_length_are_refused(results: list[Any]) -> None:
    data = reduced_form.encode(results[0], Origin(0, "t.json"))
    first, second = reduced_form._pieces(data, "x")
    known = msgspec.msgpack.decode(zlib.decompress(first))
    for column, value in (("took", b""), ("kind", b"\1" * 8), ("took", b"abc")):
        changed = known | {"facts": known["facts"] | {"talks": known["facts"]["talks"] | {column: value}}}
        piece = zlib.compress(msgspec.msgpack.encode(changed))
        whole = b"".join((reduced_form.MARK, b"1\n", *map(reduced_form._with_length, (piece, second))))
        with pytest.raises(InputError, match="damaged"):
            reduced_form.decode(whole, "x")


def test_damage_is_named_or_harmless(results: list[Any]) -> None:
    """Bytes changed at random, also inside the packed text: an InputError, or a form; never anything else."""
    data = reduced_form.encode(results[0], Origin(0, "t.json"))
    first, second = reduced_form._pieces(data, "x")
    text = bytearray(zlib.decompress(first))
    chance = random.Random(20)
    refused = 0
    for number in range(400):
        changed = bytearray(text)
        for _ in range(1 + number % 3):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        piece = zlib.compress(bytes(changed), 1)
        whole = b"".join((reduced_form.MARK, b"1\n", *map(reduced_form._with_length, (piece, second))))
        cut = whole[: chance.randrange(len(whole))] if number % 7 == 0 else whole
        try:
            reduced_form.decode(cut, "x")
        except InputError:
            refused += 1
    assert refused > 50
