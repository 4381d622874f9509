"""Patches in a copy of the user's folder: what is copied, what is linked, where a diff applies, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from advisor import cli
from advisor.gate.pairs import Side
from advisor.model import Finding, Fix, Metric, Outcome, Report, RunInfo, Source, StepsSummary, Treatment
from advisor.trying.candidates import of_report
from advisor.trying.patched import Mirrors, PatchError, place, scratch

DIFF = """--- a/lib/model.py
+++ b/lib/model.py
@@ -1 +1 @@
-WIDTH = 64
+WIDTH = 32
"""
OTHER = DIFF.replace("32", "16")
NEW = """--- /dev/null
+++ b/lib/more.py
@@ -0,0 +1 @@
+MORE = 1
"""


def project(folder: Path) -> Side:
    """A script that imports from a folder beside its own, and reads data."""
    for name, text in {
        "scripts/train.py": "from lib.model import WIDTH\nprint(WIDTH, open('data/numbers').read())\n",
        "lib/model.py": "WIDTH = 64\n",
        "lib/words.txt": "words",
        "data/numbers": "12",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return Side("base", (sys.executable, "scripts/train.py"), folder, {"PYTHONPATH": str(folder)})


def patch(*diffs: str) -> Treatment:
    return Treatment("patch", {"diffs": list(diffs), "names": []})


def everything(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def printed(side: Side) -> str:
    # As the boot folder would: the side's own path comes first.
    env = {**side.env, "PYTHONPATH": f"{side.folder}:{side.env['PYTHONPATH']}"}
    return subprocess.run(side.command, cwd=side.folder, env=env, capture_output=True, text=True, check=True).stdout


def test_a_patched_side_runs_the_patch_and_reads_the_same_data(tmp_path: Path) -> None:
    base = project(tmp_path / "user")
    before = everything(base.folder)
    sides = Mirrors(tmp_path / "scratch")
    side = sides.side(base, [patch(DIFF)])
    assert printed(side) == "32 12\n"
    assert (side.folder / "data").is_symlink()
    assert (side.folder / "lib/words.txt").is_symlink()
    assert not (side.folder / "lib/model.py").is_symlink()
    assert list(side.settings["files"].values()) == ["lib/model.py"]
    assert sides.side(base, [patch(DIFF)]).folder == side.folder
    assert sides.side(base, []).folder == base.folder
    assert everything(base.folder) == before


def test_an_interrupt_removes_the_copy_and_nothing_that_it_links(tmp_path: Path) -> None:
    base = project(tmp_path / "user")
    before, made = everything(base.folder), []

    def interrupted() -> None:
        with scratch() as folder:
            made.append(Mirrors(Path(folder)).side(base, [patch(DIFF)]).folder)
            assert made[0].is_dir()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not made[0].exists()
    assert everything(base.folder) == before


@pytest.mark.parametrize("diff", [DIFF, DIFF.replace(" a/", " ").replace(" b/", " "), NEW])
def test_a_diff_applies_with_and_without_prefixes_and_with_new_files(tmp_path: Path, diff: str) -> None:
    base = project(tmp_path / "user")
    side = Mirrors(tmp_path / "scratch").side(base, [patch(diff)])
    assert "WIDTH = 32" in (side.folder / "lib/model.py").read_text() or (side.folder / "lib/more.py").is_file()
    assert not (base.folder / "lib/more.py").exists()


def test_a_diff_from_the_root_of_a_repository_applies_in_a_folder_of_it(tmp_path: Path) -> None:
    base = project(tmp_path)
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    inner = Side("base", (sys.executable, "train.py"), tmp_path / "scripts", base.env)
    assert place(DIFF, inner).root == tmp_path.resolve()
    side = Mirrors(tmp_path.parent / f"{tmp_path.name}-scratch").side(inner, [patch(DIFF)])
    assert side.folder.name == "scripts"
    assert (side.folder.parent / "lib/model.py").read_text() == "WIDTH = 32\n"


def test_a_diff_without_lines_around_its_change_applies(tmp_path: Path) -> None:
    base = project(tmp_path / "user")
    lines = ["import torch\n", "WIDTH = 64\n", "DEPTH = 2\n", "def f():\n", "    return WIDTH\n"]
    (base.folder / "lib/model.py").write_text("".join(lines))
    diff = "--- a/lib/model.py\n+++ b/lib/model.py\n@@ -2 +2 @@\n-WIDTH = 64\n+WIDTH = 32\n"
    side = Mirrors(tmp_path / "scratch").side(base, [patch(diff)])
    lines[1] = "WIDTH = 32\n"
    assert (side.folder / "lib/model.py").read_text() == "".join(lines)
    with pytest.raises(PatchError, match="patch failed"):
        place(diff.replace("-WIDTH = 64", "-WIDTH = 63"), base)


def test_a_patch_with_other_ends_of_lines_applies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_file = import_module("advisor.commands.try")._patch
    base = project(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "faster.patch").write_bytes(DIFF.replace("\n", "\r\n").encode())
    assert of_file(Path("faster.patch"), base).arguments["diffs"] == [DIFF]
    # A file with such ends, and git's patch of it.
    (tmp_path / "lib/model.py").write_bytes(b"WIDTH = 64\r\n")
    text = DIFF.replace("64\n", "64\r\n").replace("32\n", "32\r\n")
    (tmp_path / "faster.patch").write_bytes(text.encode())
    assert of_file(Path("faster.patch"), base).arguments["diffs"] == [text]
    root = Mirrors(tmp_path / "scratch").side(base, [patch(text)]).folder
    assert (root / "lib/model.py").read_bytes() == b"WIDTH = 32\r\n"


def test_patches_that_change_the_same_line_do_not_apply_together(tmp_path: Path) -> None:
    with pytest.raises(PatchError, match="do not apply together"):
        Mirrors(tmp_path / "scratch").side(project(tmp_path / "user"), [patch(DIFF, OTHER)])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            DIFF.replace("64", "128"),
            "mine.patch: does not apply to the files here: patch failed: lib/model.py:1",
        ),
        ("hello", "--patch mine.patch: is not a unified diff"),
        (None, "--patch mine.patch: cannot be read"),
    ],
)
def test_a_patch_that_does_not_apply_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str | None, said: str
) -> None:
    base = project(tmp_path)
    monkeypatch.chdir(base.folder)
    if text is not None:
        Path("mine.patch").write_text(text)
    assert cli.main(["try", "--patch", "mine.patch", "scripts/train.py"]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1


def test_a_fix_that_is_only_an_edit_is_tried_as_its_patch() -> None:
    fix = Fix("Use float32", "numerics", edit=Treatment("in_float32"))
    found = Finding("", where=(Source("train.py", 3, ""),), fix=fix)
    outcomes = (Outcome("double-precision", "found", (found,)),)
    metrics = {"step_time_us": Metric("step_time_us", 10_000.0, "us")}
    report = Report(RunInfo(), (), StepsSummary(), metrics, (), outcomes)
    candidates, _ = of_report(report, diff_of=lambda _finding: DIFF)
    assert candidates[0].treatments == (Treatment("patch", {"diffs": [DIFF], "names": [], "edit": "in_float32"}),)
    candidates, others = of_report(report)
    assert not candidates
    assert "--patch" in others[0].why
