"""The table of constants: every entry is whole, and says where it comes from."""

from __future__ import annotations

import pytest

from advisor import constants


def test_every_constant_says_what_it_is_and_where_it_was_measured() -> None:
    found = list(constants.every())
    assert len(found) == len({one.name for one in found}) > 100
    for one in found:
        assert one.what, one.name
        assert one.how, one.name
        assert one.low <= one.high


def test_a_range_has_no_single_value() -> None:
    assert constants.constant("calls.short_op_us").value == 60.0
    assert constants.constant("topk.of_8th").range == (0.05, 0.35)
    with pytest.raises(ValueError, match=r"topk\.of_8th is a range of 0\.05 to 0\.35"):
        _ = constants.constant("topk.of_8th").value
    with pytest.raises(KeyError):
        constants.constant("calls.unheard_of")
    assert constants.known("calls.unheard_of") is None


GOOD = {"value": 1, "unit": "µs", "what": "a call", "how": "a Xeon", "n": "not recorded"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"unit": None}, "unit"),
        ({"how": None}, "how"),
        ({"n": None}, "n"),
        ({"n": 0}, "no count"),
        ({"n": "many"}, "no count"),
        ({"value": None, "low": 2, "high": 1}, "wrong order"),
        ({"typical": 3}, "beyond"),
    ],
)
def test_a_table_that_is_not_whole_is_named(change: dict[str, object], says: str) -> None:
    table = {key: value for key, value in (GOOD | change).items() if value is not None}
    with pytest.raises(ValueError, match=r"constants\.toml: calls\.one_us") as failure:
        dict(constants.parsed({"calls": {"one_us": table}}))
    assert says in str(failure.value)
    assert dict(constants.parsed({"calls": {"one_us": GOOD}}))["calls.one_us"].n is None
