"""Options of ours that stand behind the script are the script's: it gets them, and a hint says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.cli import build_parser

PLAIN = "import torch\nsteps = 10\n"
HINT = "put options of advisor before the script"


def hints(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    args = build_parser(words).parse_args(words)
    script = words.index("train.py")
    assert (getattr(args, "target", None) or args.command)[-len(words[script:]) :] == list(words[script:])
    return [line for line in capsys.readouterr().err.splitlines() if HINT in line]


@pytest.fixture(autouse=True)
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text(PLAIN)
    return path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("try", "train.py", "--budget", "60s"), "--budget 60s goes to train.py"),
        (("tune", "train.py", "--budget=60s"), "--budget=60s goes to train.py"),
        (("run", "--steps", "3", "train.py", "--steps", "5"), "--steps 5 goes to train.py"),
        (("run", "train.py", "--memory", "--lr", "1"), "--memory goes to train.py"),
        (("run", "--", "env", "train.py", "-o", "out"), "-o out goes to train.py"),
        (("gate", "--base", "main", "--", "train.py", "--mode", "blocks"), "--mode blocks goes to train.py"),
    ],
)
def test_an_option_of_ours_behind_the_script_is_named(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    assert hints(capsys, *words) == [f"advisor: {said}; {HINT}"]


@pytest.mark.parametrize(
    "words",
    [
        ("try", "--budget", "60s", "train.py", "--epochs", "3"),
        ("run", "train.py", "--help"),
        ("run", "train.py", "--", "--memory"),
        ("run", "-m", "train.py", "--memory"),
        ("run", "--quiet", "train.py", "--memory"),
    ],
)
def test_nothing_is_said_of_other_arguments(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    assert hints(capsys, *words) == []


@pytest.mark.parametrize(
    "declared",
    [
        'parser.add_argument("--stop-after-profile")',
        'flags.DEFINE_bool("stop_after_profile", False, "")',
        "class Options:\n    stop_after_profile: bool = False",
    ],
)
def test_nothing_is_said_where_the_script_declares_the_option(
    capsys: pytest.CaptureFixture[str], script: Path, declared: str
) -> None:
    assert len(hints(capsys, "run", "train.py", "--stop-after-profile")) == 1
    script.write_text(PLAIN + declared)
    assert hints(capsys, "run", "train.py", "--stop-after-profile") == []
