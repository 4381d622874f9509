"""Numbers as words, the verdict, the order of findings and the geometry of the drawings."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
import reports_fixtures as fixtures
from hypothesis import given
from hypothesis import strategies as st

from advisor import registry
from advisor.model import (
    BreakdownItem,
    Finding,
    Joint,
    Lane,
    Metric,
    Outcome,
    ReplayCheck,
    Report,
    RunInfo,
    Saving,
    Segment,
    Source,
    Timeline,
    Times,
)


def module(name: str):  # type: ignore[no-untyped-def]
    """A module of the reporters: they are found by entry point and imported by nobody."""
    from importlib import import_module

    return import_module(f"{registry.load_reporter('text').__module__.rpartition('.')[0]}.{name}")


words, verdict, ranking = module("_words"), module("_verdict"), module("_ranking")
charts, prose = module("as_html._charts"), module("as_html._prose")


@pytest.mark.parametrize(
    ("us", "said"),
    [
        (0, "0 µs"),
        (0.4, "0.400 µs"),
        (9.996, "10.0 µs"),
        (640, "640 µs"),
        (999.4, "999 µs"),
        (999.6, "1.00 ms"),
        (2434, "2.43 ms"),
        (99_960, "100 ms"),
        (999_400, "999 ms"),
        (999_600, "1.00 s"),
        (3.6e9, "3,600 s"),
    ],
)
def test_times(us: float, said: str) -> None:
    assert words.time(us) == said


@given(st.floats(1e-3, 1e12))
def test_times_are_true_to_three_digits(us: float) -> None:
    number, unit = words.time(us).split(" ")
    factor = {"µs": 1, "ms": 1e3, "s": 1e6}[unit]
    assert float(number.replace(",", "")) * factor == pytest.approx(us, rel=0.0051)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (1100, 1640, "1.10 to 1.64 ms"),
        (900, 15_000, "0.9 to 15.0 ms"),
        (0, 22_000, "up to 22.0 ms"),
        (1200, 1200, "1.20 ms"),
        (0, 0, "0 µs"),
        (1, 40_000, "up to 40.0 ms"),
    ],
)
def test_ranges(low: float, high: float, said: str) -> None:
    assert words.time_range(low, high) == said


def test_ranges_take_the_unit_of_the_step() -> None:
    assert words.time_range(470, 773, 14_500) == "0.47 to 0.77 ms"
    assert words.time_range(35_800, 59_700, 1_760_000) == "0.04 to 0.06 s"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "0 %"),
        (0.0001, "<0.1 %"),
        (0.004, "0.4 %"),
        (0.43, "43 %"),
        (0.9951, "99.5 %"),
        (0.99999, ">99.9 %"),
        (1, "100 %"),
    ],
)
def test_shares_are_never_none_or_all_where_something_is(value: float, said: str) -> None:
    assert words.share(value) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [(0, "0 B"), (12, "12 B"), (0.25, "0.25 B"), (999.9, "1.00 kB"), (4_194_304, "4.19 MB"), (8e10, "80.0 GB")],
)
def test_sizes(value: float, said: str) -> None:
    assert words.size(value) == said


@pytest.mark.parametrize(
    ("value", "said"), [(0, "0"), (0.25, "0.25"), (12.5, "12.5"), (1465, "1,465"), (1234.5, "1,234")]
)
def test_counts(value: float, said: str) -> None:
    assert words.count(value) == said


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("idle_us", 40_000.0, ("idle", "40.0 ms")),
        ("h2d_bytes", 38_535_168, ("h2d bytes", "38.5 MB")),
        ("input_share", 0.4, ("input share", "40 %")),
        ("fixed_us", [4211, 5800], ("fixed", "4.21 to 5.80 ms")),
        ("promised_per_second", (431, 6966), ("promised per second", "431 to 6,966")),
        ("sizes", [3, 2], ("sizes", "3, 2")),
        ("gap_ns", 1500, ("gap", "1.50 µs")),
        ("workers", 0, ("workers", "0")),
        ("pinned", False, ("pinned", "no")),
        ("dtypes", ["float", "half"], ("dtypes", "float, half")),
        ("sample_us", None, ("sample", "unknown")),
        ("share", 0.4, ("share", "0.4")),
    ],
)
def test_facts_show_the_unit_of_their_name(name: str, value: object, said: tuple[str, str]) -> None:
    assert words.fact(name, value) == said


def test_what_a_terminal_would_obey_is_taken_out() -> None:
    assert (
        words.clean("\x1b[31mred\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x1b\\ \x9b1mx \u202ee\x00\udc80")
        == "red link x e"
    )
    assert words.one_line("a\r\nb\tc\u2028d") == "a b c d".replace("c d", "cd")


@given(st.text())
def test_cleaned_text_holds_no_control_character(text: str) -> None:
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", words.clean(text))


@given(st.text(min_size=1), st.integers(8, 200))
def test_short_names_fit(text: str, limit: int) -> None:
    assert len(words.short(text, limit)) <= limit


def test_short_names_lose_noise_first() -> None:
    assert words.short(fixtures.KERNEL, 80) == "vectorized_elementwise_kernel<4, FillFunctor<float>, Array<char*, 1> >"
    assert words.short("ampere_fp16_s16816gemm_" + "x" * 60 + "_stages_32x5_tn").endswith("_stages_32x5_tn")
    assert words.short("f<int>(a<b>)") == "f<int>(a<b>)"


def test_paths_lose_the_user() -> None:
    assert words.path("/home/alice/x/y.py") == "~/x/y.py"
    assert words.path("C:\\Users\\alice\\t.py") == "~\\t.py"
    assert words.path("/root") == "~"
    assert words.path("/tmp/torchinductor_alice/ab/x.py") == "/tmp/torchinductor_…/ab/x.py"
    assert words.path("train.py") == "train.py"


def made(parts: dict[str, float], **changes: object) -> Report:
    items = tuple(BreakdownItem(name, share * 1e5, share) for name, share in parts.items())
    return replace(fixtures.canonical(), breakdown=items, **changes)


def said(parts: dict[str, float], **changes: object) -> str:
    text: str = verdict.headline(made(parts, **changes)).verdict
    return text


def test_a_busy_gpu_is_called_so() -> None:
    text = said({"compute": 0.96, "idle_launch": 0.04})
    assert text.startswith("The GPU computes for 96 % of the step: the work itself is the limit")


@given(st.floats(0.01, 0.79), st.sampled_from(["exposed_communication", "idle_input", "idle_unknown", "exposed_copy"]))
def test_a_step_of_low_compute_share_is_never_called_busy(compute: float, cause: str) -> None:
    """Communication keeps a GPU occupied and is no work done: the verdict names it as a loss."""
    text = said({"compute": compute, cause: 1 - compute})
    assert text.startswith(f"The GPU computes for only {words.share(compute)} of the step; for ")
    assert words.share(1 - compute) in text


def test_a_cpu_step_names_its_largest_parts() -> None:
    assert said({"input": 0.06, "forward": 0.24, "backward": 0.45, "host": 0.25}) == (
        "On the CPU, the step goes mostly to the backward pass (45 %) and Python between operators (25 %)."
    )


def test_host_time_beside_a_device_that_was_not_measured_may_be_waiting() -> None:
    unseen = Metric("device_busy_share", None, "share", "not_measured", "the trace is of an accelerator")
    run = RunInfo(devices=("ARTEMIS",))
    text = said({"host": 0.94, "other_ops": 0.06}, metrics={"device_busy_share": unseen}, run=run)
    assert text == "The host spends the step mostly in Python between operators (94 %), perhaps waiting for ARTEMIS."


def test_nothing_measured_is_said() -> None:
    assert "not measured" in said({})
    head = verdict.headline(replace(fixtures.canonical(), metrics={}))
    assert (head.step, head.step_us) == ("not measured", None)


@pytest.mark.parametrize(
    ("mean", "median", "said"),
    [
        (109, 100, ""),
        (111, 100, "11 % above the median"),
        (400, 100, "4.00 times the median"),
        (80, 100, "20 % below the median"),
        (None, 100, ""),
        (100, None, ""),
    ],
)
def test_the_tail_is_named_from_ten_per_cent_on(mean: float | None, median: float | None, said: str) -> None:
    steps = replace(fixtures.canonical().steps, unprofiled_us=Times(mean, median, None, None, 50))
    tail = verdict.headline(replace(fixtures.canonical(), steps=steps)).tail
    assert (said in tail) if said else tail == ""


@pytest.mark.parametrize(
    ("unprofiled", "profiled", "basis"),
    [
        (Times(2, 1, 1, 3, 120), Times(2, 2, 2, 2, 6), "median of 120 un-profiled steps"),
        (Times(2, None, None, None, 30), Times(2, 2, 2, 2, 6), "mean of 30 un-profiled steps"),
        (Times(), Times(2, 2, 2, 2, 6), "median of 6 profiled steps"),
        (Times(), Times(2, 2, 2, 2, 1), "one profiled step"),
    ],
)
def test_the_headline_says_what_its_number_is(unprofiled: Times, profiled: Times, basis: str) -> None:
    steps = replace(fixtures.canonical().steps, unprofiled_us=unprofiled, profiled_us=profiled)
    assert verdict.headline(replace(fixtures.canonical(), steps=steps)).basis == basis


def test_what_can_be_reached_comes_from_the_joint_saving_alone() -> None:
    assert verdict.reach(replace(fixtures.canonical(), joint=None)) is None
    reach = verdict.reach(replace(fixtures.canonical(), joint=Joint(38_400, 58_400, 50_000)))
    assert (reach.range, reach.about, reach.saved) == ("40.0 to 60.0 ms", "50.0 ms", "39 to 59 %")
    assert verdict.reach(replace(fixtures.canonical(), metrics={}, joint=Joint(1, 2, 3))) is None
    # Where all of it may give nothing, no single figure is promised.
    reach = verdict.reach(replace(fixtures.canonical(), joint=Joint(0, 58_400, 70_000)))
    assert (reach.range, reach.about, reach.saved) == ("40.0 to 98.4 ms", "", "up to 59 %")


def test_no_step_is_promised_to_vanish() -> None:
    reach = verdict.reach(replace(fixtures.canonical(), joint=Joint(49_200, 98_400, 24_600)))
    assert (reach.range, reach.about, reach.saved) == ("at most 49.2 ms", "", "at least 50 %")


def test_a_larger_batch_is_verified_by_the_samples_of_today() -> None:
    cpu = fixtures.on_cpu()
    (outcome,) = (outcome for outcome in cpu.outcomes if outcome.rule == "small-batch")
    again = ranking.check_again(outcome.findings[0], 2_430)
    assert "the samples of one step of today should take 0.73 to 0.93 ms" in again
    assert "samples of a step of today" in verdict.reach(cpu).basis


def test_low_confidence_is_a_caveat() -> None:
    caveats = verdict.headline(replace(fixtures.canonical(), replay=ReplayCheck(0.12, True))).caveats
    assert any("low confidence" in caveat and "12 %" in caveat for caveat in caveats)


def test_the_parts_add_up_to_the_step_of_the_headline() -> None:
    report = fixtures.canonical()
    assert sum(item.us for item in verdict.parts(report)) == pytest.approx(98_400)


def test_the_best_three_are_confirmed_in_reach_and_by_saving() -> None:
    def outcome(rule: str, high: float | None, confirmed: bool = True, recoverable: bool = True) -> Outcome:
        saving = None if high is None else Saving(0, high, "modelled", "")
        return Outcome(rule, "found", (Finding(rule, saving, recoverable=recoverable),), confirmed=confirmed)

    outcomes = (
        outcome("none", None),
        outcome("small", 1),
        outcome("dream", 90, confirmed=False),
        outcome("disk", 80, recoverable=False),
        outcome("large", 50),
        outcome("middle", 20),
        outcome("tiny", 0.5),
    )
    groups = ranking.groups(replace(fixtures.canonical(), outcomes=outcomes))
    assert [ranked.outcome.rule for ranked in groups.best] == ["large", "middle", "small"]
    assert [ranked.outcome.rule for ranked in groups.more] == ["tiny", "none"]
    assert [ranked.outcome.rule for ranked in groups.unconfirmed] == ["dream"]
    assert [ranked.outcome.rule for ranked in groups.out_of_reach] == ["disk"]
    everyone = (*groups.best, *groups.more, *groups.unconfirmed, *groups.out_of_reach)
    assert [ranked.number for ranked in everyone] == [1, 2, 3, 4, 5, 6, 7]


def test_a_function_line_is_called_the_functions_first() -> None:
    call, function = Source("a.py", 9, "f"), Source("a.py", 4, "f", "function")
    assert ranking.places(Finding("m", where=(call, function, call))) == (
        ("a.py:9", "in f()"),
        ("a.py", "in f(), from line 4"),
    )


def test_no_finding_is_not_the_same_as_nothing_judged() -> None:
    empty = fixtures.empty()
    assert ranking.nothing_found(replace(empty, outcomes=(Outcome("a", "clear"),))) == "Nothing to change was found"
    assert "No rule could judge" in ranking.nothing_found(replace(empty, outcomes=(Outcome("a", "skipped"),)))
    assert "No rule was applied" in ranking.nothing_found(empty)


def percent(text: str) -> float:
    return float(text.removesuffix("%")) / 100


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_the_bar_is_full_and_in_proportion(shares: list[float]) -> None:
    items = [BreakdownItem(f"part{i}", share * 100, share) for i, share in enumerate(shares)]
    pieces = charts.bar(items)
    assert len(pieces) == sum(share > 0 for share in shares)
    x = 0.0
    for piece, share in zip(pieces, [share for share in shares if share > 0], strict=True):
        assert percent(piece.x) == pytest.approx(x, abs=1e-4)
        assert percent(piece.width) == pytest.approx(share / sum(shares), abs=1e-4)
        x += share / sum(shares)


@given(st.lists(st.tuples(st.floats(-10, 120), st.floats(0, 150)), max_size=30))
def test_the_timeline_stays_inside_the_step(pieces: list[tuple[float, float]]) -> None:
    segments = tuple(Segment(start, dur, "kernel", "k") for start, dur in pieces)
    drawn = charts.timeline(Timeline("s", 100, (Lane("l", segments),)))
    for box, (start, dur) in zip(drawn.lanes[0].boxes, pieces, strict=True):
        left = min(max(start, 0), 100)
        assert percent(box.x) == pytest.approx(left / 100, abs=1e-4)
        assert percent(box.x) + percent(box.width) <= 1.0001
        assert percent(box.width) == pytest.approx(min(dur, 100 - left) / 100, abs=1e-4)


@given(st.floats(1e-2, 1e9))
def test_the_axis_has_a_few_round_marks(dur_us: float) -> None:
    drawn = charts.timeline(Timeline("s", dur_us, (Lane("l", (Segment(0, 1, "op", "x"),)),)))
    assert 5 <= len(drawn.ticks) <= 13
    assert drawn.ticks[0][0] == "0%"


def test_what_the_table_leaves_out_is_counted_with_its_time() -> None:
    segments = tuple(Segment(i * 10.0, float(1 + i % 7), "op", f"op{i}") for i in range(100))
    lane = charts.timeline(Timeline("s", 1000, (Lane("l", segments),))).lanes[0]
    hidden = sorted((segment.dur_us for segment in segments), reverse=True)[len(lane.rows) :]
    assert lane.left_out == f"{len(hidden)} shorter segments, {words.time(sum(hidden))} in all"


def test_a_foreign_kind_never_becomes_a_class() -> None:
    assert charts.kind_class('x" onload="y') == "other"


@given(st.lists(st.floats(0, 1e7), min_size=2, max_size=60))
def test_the_strip_tells_what_it_cuts(series: list[float]) -> None:
    report = fixtures.canonical()
    strip = charts.strip(replace(report, steps=replace(report.steps, series_us=tuple(series))))
    heights = [100 - float(value) for value in re.findall(r"V([\d.]+)h", strip.path)]
    assert len(heights) == len(series)
    assert all(0 <= height <= 100 for height in heights)
    cut = len(re.findall("M", strip.over))
    assert strip.clipped.startswith(f"{cut} step") if cut else strip.clipped == ""
    # Bars that are not cut have the proportions of the steps.
    whole = [(value, height) for value, height in zip(series, heights, strict=True) if height < 100]
    tallest, height = max(whole, key=lambda pair: pair[1], default=(0.0, 0.0))
    if height > 1:
        assert [one for _, one in whole] == pytest.approx([value / tallest * height for value, _ in whole], abs=0.05)


def test_a_rules_page_becomes_blocks() -> None:
    blocks = prose.blocks(fixtures.PAGE)
    assert [block.kind for block in blocks] == [
        "heading", "text", "heading", "text", "list", "heading", "text", "code", "heading", "text",
    ]  # fmt: skip
    assert blocks[4].items == ("nothing overlaps with the wait", "the next kernels start late")
    assert blocks[7].items == ("loader = DataLoader(data, num_workers=4)",)
    assert [(span.kind, span.text) for span in prose.spans("a `b` **c** d`")] == [
        ("text", "a "), ("code", "b"), ("text", " "), ("strong", "c"), ("text", " d`"),
    ]  # fmt: skip


def test_code_with_blank_lines_stays_one_block() -> None:
    page = "T\n\n## How\nText:\n\n    a = 1\n\n    b = 2\n\n```python\nc = 3\n\nd = 4\n```\nend"
    assert [(block.kind, block.items[0]) for block in prose.blocks(page)] == [
        ("heading", "How"), ("text", "Text:"), ("code", "a = 1\n\nb = 2"), ("code", "c = 3\n\nd = 4"), ("text", "end"),
    ]  # fmt: skip


@given(st.text())
def test_any_page_becomes_blocks(page: str) -> None:
    for block in prose.blocks(page):
        assert "".join(span.text for item in block.items for span in prose.spans(item)) or not "".join(block.items)


def test_a_page_of_one_gpu_stays_small() -> None:
    """Six lanes of 150 named segments, 40 kernels with names of 2,000 characters, 500 steps."""
    name = "void at::native::kernel<" + "at::native::Functor<float>, " * 70 + ">"
    segments = tuple(Segment(j * 100.0, 90.0, "kernel", f"{name}{j}") for j in range(150))
    lanes = tuple(Lane(f"stream {i}", segments) for i in range(6))
    report = fixtures.canonical()
    rows = tuple(replace(report.kernels[0], name=f"{name}{i}") for i in range(40))
    steps = replace(report.steps, series_us=tuple(1000 + 13.7 * math.sin(i) for i in range(500)))
    big = replace(report, timeline=Timeline("s", 15_000, lanes), kernels=rows, ops=rows, steps=steps)
    assert len(registry.load_reporter("html")(big).encode("utf-8")) <= 300_000


def test_a_job_of_many_ranks_shows_the_slowest_and_the_reference() -> None:
    page = registry.load_reporter("html")(fixtures.many_ranks(4096))
    assert len(page.encode("utf-8")) <= 300_000
    shown = [int(rank) for rank in re.findall(r'class="rankrow">(\d+)', page)]
    assert 4095 in shown
    assert 3 in shown
    assert f"{4096 - len(shown):,} faster ranks not shown" in page


TRACES = Path(__file__).parents[1].parent / "shared" / "traces"


@pytest.mark.skipif(not TRACES.is_dir(), reason="the traces of others are not beside this checkout")
@pytest.mark.parametrize("trace", sorted(TRACES.glob("*.json.gz")), ids=lambda path: path.name.split(".")[0])
def test_pages_of_real_traces_are_whole_and_small(trace: Path, tmp_path: Path) -> None:
    from advisor import cli

    assert cli.main(["analyze", str(trace), "--output", str(tmp_path), "--quiet"]) == 0
    page = (tmp_path / "report.html").read_text("utf-8")
    assert len(page.encode("utf-8")) <= 300_000
    assert page.endswith("</html>\n")
    visible = re.sub(r"(?s)<(style|script|pre)\b.*?</\1>|<[^>]+>", " ", page)
    assert not re.search(r"\b(None|nan|NaN|Infinity|undefined)\b", visible)


def test_an_unknown_metric_and_part_speak_for_themselves() -> None:
    metrics = {"my_metric": Metric("my_metric", 3.0, "count")}
    page = registry.load_reporter("html")(made({"my_part": 1.0}, metrics=metrics))
    assert "my metric" in page
    assert "my part" in page
