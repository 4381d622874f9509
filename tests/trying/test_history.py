"""What is kept of trials, how it is told again, and what a card that is sent in does not hold."""

from __future__ import annotations

import json
from pathlib import Path

from msgspec.structs import replace

from advisor.model import Report, RunInfo, StepsSummary, Treatment, Trial, Tried
from advisor.trying import history
from advisor.trying.history import Where

HERE = Where("GPU X", {"torch": "2.9"})
TRIAL = Trial(
    "Set `secret=2`", "faster", "/home/me/train.py", ("input-bound",), "exact",
    (Treatment("environment", {"SECRET": "1"}),), 0.2, 0.4, 0.25, 0.22, 0.28, 6,
)  # fmt: skip


def tried(*gains: tuple[float, float, float]) -> Tried:
    return Tried(tuple(replace(TRIAL, gain=one[0], low=one[1], high=one[2]) for one in gains), noise=0.01)


def test_later_promises_say_how_earlier_ones_held(tmp_path: Path) -> None:
    home = tmp_path / "data"
    assert history.held(history.recall(home, HERE), ["input-bound"]) == ""
    gains = ((0.25, 0.2, 0.3), (0.5, 0.45, 0.55), (0.1, 0.05, 0.15), (0.45, 0.39, 0.5))
    for one in gains:
        assert history.remember(home, history.records_of(tried(one), HERE))
    (home / "tried.jsonl").open("a").write("{damaged\n\n{}\n")
    assert history.remember(home, history.records_of(tried((0.9, 0.8, 0.95)), Where("another GPU")))
    known = history.recall(home, HERE)
    assert len(known) == 4
    said = "earlier on this machine: 2 of 4 predictions held, 1 saved less, 1 saved more"
    assert history.held(known, ["input-bound"]) == said
    assert history.held(known, ["other-rule"]) == ""


def test_what_was_not_tried_or_has_no_rule_is_not_kept(tmp_path: Path) -> None:
    others = Tried((Trial("a", "not tried", rules=("x",)), replace(TRIAL, rules=())))
    assert [one.rule for one in history.records_of(others, HERE)] == [""]
    assert history.remember(tmp_path, history.records_of(others, HERE))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_to_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert not history.remember(tmp_path / "file", history.records_of(tried((0.1, 0.0, 0.2)), HERE))


def test_a_card_holds_figures_and_nothing_of_the_script() -> None:
    text = history.card(tried((0.25, 0.22, 0.28)), HERE).decode()
    assert not any(word in text.lower() for word in ("secret", "train", "home"))
    card = json.loads(text)
    assert card["device"] == "GPU X"
    assert card["trials"] == [
        {
            "rule": "input-bound",
            "verdict": "faster",
            "treatments": ["environment"],
            "promised": [0.2, 0.4],
            "measured": [0.25, 0.22, 0.28],
            "numbers": "not compared",
            "pairs": 6,
            "mechanism": "unknown",
        }
    ]


def test_the_machine_is_that_of_the_report_or_this_one() -> None:
    run = RunInfo(versions={"torch": "2.9", "hostname": "mine"}, devices=("GPU X", "GPU X"))
    where = history.where_of(Report(run, (), StepsSummary(), {}, (), ()))
    assert where.device == "GPU X"
    assert set(where.versions) == {"torch", "torch-advisor"}
    assert history.where_of(None, "2.8").versions["torch"] == "2.8"
