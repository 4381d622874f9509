"""Numbers, names and texts of reports in words: true to their value, safe for a terminal, without the user's name."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_parts import KERNEL
from reports_fixtures import made, module

from advisor.engine import registry
from advisor.model import (
    Metric,
)

words = module("_words")


@pytest.mark.parametrize(
    ("us", "said"),
    [
        (0, "0 µs"),
        (0.4, "0.4 µs"),
        (9.996, "10 µs"),
        (640, "640 µs"),
        (999.4, "999 µs"),
        (999.6, "1 ms"),
        (2434, "2.43 ms"),
        (99_960, "100 ms"),
        (999_400, "999 ms"),
        (999_600, "1 s"),
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
    [
        *((0, "0 B"), (12, "12 B"), (0.25, "0.25 B"), (999, "999 B"), (999.9, "1 kB"), (999_600, "1 MB")),
        *((4_194_304, "4.19 MB"), (19.2e6, "19.2 MB"), (8e10, "80 GB"), (1.5e12, "1.5 TB")),
    ],
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
        ("idle_us", 40_000.0, ("idle", "40 ms")),
        ("h2d_bytes", 38_535_168, ("h2d bytes", "38.5 MB")),
        ("input_share", 0.4, ("input share", "40 %")),
        ("fixed_us", [4211, 5800], ("fixed", "4.21 to 5.80 ms")),
        ("promised_per_second", (431, 6966), ("promised per second", "431 to 6,966")),
        ("sizes", [3, 2], ("sizes", "3, 2")),
        ("gap_ns", 1500, ("gap", "1.5 µs")),
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
    assert words.short(KERNEL, 80) == "vectorized_elementwise_kernel<4, FillFunctor<float>, Array<char*, 1> >"
    assert words.short("ampere_fp16_s16816gemm_" + "x" * 60 + "_stages_32x5_tn").endswith("_stages_32x5_tn")
    assert words.short("f<int>(a<b>)") == "f<int>(a<b>)"


@pytest.mark.parametrize(
    ("name", "cut"),
    [
        ("aten::cudnn_convolution_backward_input", "aten::|cudnn_|convolution_|backward_|input"),
        ("autograd::engine::evaluate_function: MulBackward0", "autograd::|engine::|evaluate_|function: MulBackward0"),
        ("volta_sgemm_64x64_nt", "volta_|sgemm_|64x64_|nt"),
        ("gemm<float, 3>", "gemm|<float, 3>"),
        ("a_b", "a_b"),
        ("", ""),
    ],
)
def test_names_end_a_line_between_their_words(name: str, cut: str) -> None:
    assert "|".join(words.pieces(name)) == cut


@given(st.text())
def test_a_cut_name_loses_nothing(name: str) -> None:
    assert "".join(words.pieces(name)) == name


def test_paths_lose_the_user() -> None:
    assert words.path("/home/alice/x/y.py") == "~/x/y.py"
    assert words.path("C:\\Users\\alice\\t.py") == "~\\t.py"
    assert words.path("/root") == "~"
    assert words.path("/tmp/torchinductor_alice/ab/x.py") == "/tmp/torchinductor_…/ab/x.py"
    assert words.path("train.py") == "train.py"


def test_an_unknown_metric_and_part_speak_for_themselves() -> None:
    metrics = {"my_metric": Metric("my_metric", 3.0, "count")}
    page = registry.load_reporter("html")(made({"my_part": 1.0}, metrics=metrics))
    assert "my metric" in page
    assert "my part" in page


def test_names_of_operators_stay_whole_in_labels() -> None:
    assert module("_labels").metric("op:aten::_foreach_add_").name == "Calls of aten::_foreach_add_"
    assert module("_labels").metric("queue_delay").name == "queue delay"
