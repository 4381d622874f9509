"""report.json: what is written is read back, stays the same bytes, and damaged or foreign files are one clear line."""

from __future__ import annotations

import contextlib
import json
import math

import numpy as np
import pytest
import reports_fixtures as fixtures
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from advisor.errors import AdvisorError, InputError, UsageError
from advisor.model import BreakdownItem, Finding, Metric, Outcome, Report, Saving, StepsSummary, Times, finding_order
from advisor.report.report_file import decode, encode, ordered


def with_facts(facts: dict[str, object]) -> Report:
    return replace(fixtures.empty(), outcomes=(Outcome("r", "found", (Finding("m", facts=facts),)),))


@pytest.mark.parametrize("name", ["canonical", "empty", "on_cpu", "many_ranks"])
def test_a_report_reads_back_as_it_was(name: str) -> None:
    report = ordered(fixtures.REPORTS[name]())
    assert decode(encode(report)) == report
    assert encode(decode(encode(report))) == encode(report)


def test_a_hostile_report_reads_back_but_for_what_utf8_cannot_hold() -> None:
    report = fixtures.hostile()
    data = encode(report)
    assert encode(decode(data)) == data
    assert decode(data).run.command[0] == report.run.command[0].replace("\udc80", "\\udc80")


def test_reports_of_many_ranks_are_not_indented() -> None:
    report = fixtures.many_ranks()
    many = replace(report, ranks=tuple(replace(report.ranks[0], rank=rank) for rank in range(65)))
    data = encode(many)
    assert data.startswith(b'{"schema":"torch-advisor/report","version":1,')
    assert data.count(b"\n") == 1
    assert decode(data) == ordered(many)
    assert encode(replace(many, ranks=many.ranks[:64])).startswith(b'{\n "schema"')


def test_the_contract_of_the_keys() -> None:
    data = fixtures.as_plain(encode(fixtures.canonical()).decode())
    assert list(data)[:2] == ["schema", "version"]
    assert (data["schema"], data["version"]) == ("torch-advisor/report", 1)
    wanted = {"run", "health", "steps", "metrics", "breakdown", "outcomes", "joint", "replay", "ranks"}
    assert wanted <= set(data)
    assert {"command", "versions", "devices", "reference_rank"} <= set(data["run"])
    assert {"count", "source", "eval_count", "profiled_us", "unprofiled_us", "dilation"} <= set(data["steps"])
    assert set(data["steps"]["unprofiled_us"]) == {"mean", "median", "p10", "p90", "n"}
    assert {"value", "unit", "status", "why"} <= set(data["metrics"]["step_time_us"])
    assert set(data["breakdown"][0]) == {"id", "us", "share"}
    found = next(outcome for outcome in data["outcomes"] if outcome["status"] == "found")
    assert {"rule", "status", "reason", "findings"} <= set(found)
    assert {"message", "severity", "saving", "where", "facts", "fix", "ranks"} <= set(found["findings"][0])
    assert {"low_us", "high_us", "basis", "how", "width_us"} == set(found["findings"][0]["saving"])
    assert {"low_us", "high_us", "step_us_after"} <= set(data["joint"])
    assert set(data["replay"]) == {"error_share", "low_confidence"}
    assert {"rank", "file", "metrics", "steps", "breakdown"} == set(data["ranks"][0])


def test_what_was_not_measured_is_null_never_zero() -> None:
    data = fixtures.as_plain(encode(fixtures.on_cpu()).decode())
    busy = data["metrics"]["device_busy_share"]
    assert busy["value"] is None
    assert (busy["status"], busy["why"]) == ("not_measured", "no device work in the trace")
    assert data["replay"] is None
    assert fixtures.as_plain(encode(fixtures.empty()).decode())["steps"]["unprofiled_us"]["median"] is None


def test_findings_stand_in_the_order_of_the_contract() -> None:
    def finding(low: float | None, high: float = 0, message: str = "m") -> Finding:
        return Finding(message, None if low is None else Saving(low, high, "modelled", ""))

    mixed = (finding(None), finding(1, 5), finding(3, 9), finding(2, 9), finding(0, 0))
    outcomes = (Outcome("b", "clear"), Outcome("c", "found", (finding(4, 20),)), Outcome("a", "found", mixed))
    data = fixtures.as_plain(encode(replace(fixtures.empty(), outcomes=outcomes)).decode())
    assert [outcome["rule"] for outcome in data["outcomes"]] == ["c", "a", "b"]
    savings = [finding["saving"] for finding in data["outcomes"][1]["findings"]]
    assert [s and (s["low_us"], s["high_us"]) for s in savings] == [(3, 9), (2, 9), (1, 5), (0, 0), None]


def test_no_nan_and_no_infinity_is_written() -> None:
    report = replace(with_facts({"a": math.nan, "b": [math.inf, 1]}), metrics={"mfu": Metric("mfu", math.nan, "share")})
    data = fixtures.as_plain(encode(report).decode())
    assert data["outcomes"][0]["findings"][0]["facts"] == {"a": None, "b": [None, 1]}
    assert data["metrics"]["mfu"]["value"] is None
    assert data["metrics"]["mfu"]["status"] == "not_measured"
    assert data["metrics"]["mfu"]["why"]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_number_that_must_be_there_is_never_written_as_nothing(bad: float) -> None:
    report = replace(fixtures.empty(), breakdown=(BreakdownItem("compute", bad, 1.0),))
    with pytest.raises(ValueError, match="breakdown"):
        encode(report)


def test_facts_of_other_types_become_plain_values() -> None:
    facts = {"f": np.float64(2.5), "i": np.int64(3), "a": np.array([1, 2]), "s": {2, 1}, "t": (1, "x"), "o": fixtures}
    read = decode(encode(with_facts(facts))).outcomes[0].findings[0].facts
    assert read == {"f": 2.5, "i": 3, "a": [1, 2], "s": [1, 2], "t": [1, "x"], "o": str(fixtures)}


def test_keys_that_a_later_minor_version_adds_are_ignored() -> None:
    data = json.loads(encode(fixtures.canonical()))
    data["later"] = {"x": 1}
    data["steps"]["later"] = 2
    assert decode(json.dumps(data).encode()) == ordered(fixtures.canonical())


@pytest.mark.parametrize(
    ("data", "kind", "says"),
    [
        (b"", InputError, "not a readable report"),
        (b"{", InputError, "not a readable report"),
        (b"[]", InputError, "not a readable report"),
        (b"\xff\xfe\x00", InputError, "not a readable report"),
        (b'{"a":' * 5000, InputError, "not a readable report"),
        (b"{}", InputError, "not a report of torch-advisor"),
        (b'{"traceEvents": []}', InputError, "not a report of torch-advisor"),
        (b'{"schema": "torch-advisor/run", "version": 1}', InputError, "not a report of torch-advisor"),
        (b'{"schema": "torch-advisor/report", "version": 2}', UsageError, "newer"),
        (b'{"schema": "torch-advisor/report", "version": "x"}', InputError, "not a readable report"),
        (b'{"schema": "torch-advisor/report", "version": 1}', InputError, "damaged"),
        (encode(fixtures.canonical())[:-100], InputError, "not a readable report"),
        (encode(fixtures.canonical()).replace(b'"low_us": 34000', b'"low_us": 99999'), InputError, "damaged"),
        (encode(fixtures.canonical()).replace(b'"modelled"', b'"guessed"', 1), InputError, "damaged"),
    ],
)
def test_damaged_foreign_and_newer_files_are_one_clear_line(data: bytes, kind: type[AdvisorError], says: str) -> None:
    with pytest.raises(kind, match=says) as caught:
        decode(data, "base/report.json")
    message = str(caught.value)
    assert message.startswith("base/report.json: ")
    assert "\n" not in message
    assert len(message) < 400


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "ignore")))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_a_report_or_an_error_of_ours(data: bytes) -> None:
    with contextlib.suppress(AdvisorError):
        decode(data)


@given(st.lists(st.tuples(st.none() | st.tuples(st.floats(0, 1e9), st.floats(0, 1e9)), st.text()), max_size=8))
@settings(max_examples=100, deadline=None)
def test_any_findings_read_back_in_order(found: list[tuple[tuple[float, float] | None, str]]) -> None:
    findings = tuple(
        Finding(text, None if pair is None else Saving(min(pair), max(pair), "modelled", "")) for pair, text in found
    )
    steps = StepsSummary(unprofiled_us=Times(mean=1.5))
    report = replace(fixtures.empty(), steps=steps, outcomes=(Outcome("r", "found", findings),))
    read = decode(encode(report)).outcomes[0].findings
    assert list(read) == sorted(findings, key=lambda finding: finding_order("r", finding))
