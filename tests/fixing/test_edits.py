"""Fixes as edits: only the call changes, everything else stays as the user wrote it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from advisor import cli
from advisor.fixing.edits import NoEditError, edit
from advisor.model import Finding, Fix, Metric, Outcome, Report, RunInfo, Saving, Source, StepsSummary, Treatment
from advisor.report.report_file import encode

WORKERS = Treatment("loader", {"num_workers": 2, "persistent_workers": True})
IN_LOOP = Treatment("calls", {"names": ["gc.collect"]})
IN_PROCESS = Treatment("loader", {"num_workers": 0})
FUSED = Treatment("optimizer", {"fused": True})


@pytest.mark.parametrize(
    ("before", "treatment", "after"),
    [
        ("DataLoader(data)", WORKERS, "DataLoader(data, num_workers=2, persistent_workers=True)"),
        ("DataLoader(data, num_workers = 0)", WORKERS, "DataLoader(data, num_workers = 2, persistent_workers=True)"),
        (
            "loader = DataLoader(\n    data,  # 'äöü'\n    shuffle=True,\n)",
            WORKERS,
            "loader = DataLoader(\n    data,  # 'äöü'\n    shuffle=True,\n"
            "    num_workers=2,\n    persistent_workers=True,\n)",
        ),
        (
            "DataLoader(\n    data,\n    shuffle=True,  # of each epoch\n)",
            WORKERS,
            "DataLoader(\n    data,\n    shuffle=True,  # of each epoch\n"
            "    num_workers=2,\n    persistent_workers=True,\n)",
        ),
        (
            "DataLoader(data,\r\n           shuffle=True)",
            WORKERS,
            "DataLoader(data,\r\n           shuffle=True,\r\n"
            "           num_workers=2,\r\n           persistent_workers=True)",
        ),
        (
            "DataLoader(\n    data,\n    shuffle=True  # of each epoch\n)",
            WORKERS,
            "DataLoader(\n    data,\n    shuffle=True,  # of each epoch\n"
            "    num_workers=2,\n    persistent_workers=True,\n)",
        ),
        (
            "DataLoader(\n    data, shuffle=True,\n)",
            WORKERS,
            "DataLoader(\n    data, shuffle=True, num_workers=2, persistent_workers=True,\n)",
        ),
        (
            "DataLoader(data, num_workers=8, prefetch_factor=4, persistent_workers=True)",
            Treatment("loader", {"num_workers": 0}),
            "DataLoader(data, num_workers=0)",
        ),
        (
            'x = "ä"; o = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)',
            Treatment("optimizer", {"fused": True}),
            'x = "ä"; o = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)',
        ),
        ("torch.set_num_threads(16)", Treatment("threads", {"count": 2}), "torch.set_num_threads(2)"),
        (
            "a.zero_grad(set_to_none=False)\nb.zero_grad(set_to_none=False)  # both",
            Treatment("set_to_none"),
            "a.zero_grad()\nb.zero_grad()  # both",
        ),
        ("DDP(model)", Treatment("ddp", {"static_graph": True}), "DDP(model, static_graph=True)"),
        ("for x in y:\n    f(x)\n    gc.collect()\nend()", IN_LOOP, "for x in y:\n    f(x)\nend()"),
        ("if x:\n    gc.collect()\nend()", IN_LOOP, "if x:\n    pass\nend()"),
        ("f(); gc.collect()", IN_LOOP, "f(); pass"),
        ("DataLoader(data, 32, True)", Treatment("batch", {"size": 64}), "DataLoader(data, 64, True)"),
        ("DataLoader(data)", Treatment("batch", {"size": 64}), "DataLoader(data, batch_size=64)"),
        (
            "model = net.double()  # ü\nx = torch.zeros(2, dtype=torch.float64)\n",
            Treatment("in_float32"),
            "model = net.float()  # ü\nx = torch.zeros(2, dtype=torch.float32)\n",
        ),
        # Brackets, generators, places without names
        ("DataLoader((data))", WORKERS, "DataLoader((data), num_workers=2, persistent_workers=True)"),
        (
            "DataLoader(data, num_workers=(4), shuffle=(True))",
            IN_PROCESS,
            "DataLoader(data, num_workers=(0), shuffle=(True))",
        ),
        ("SGD(p for p in ps)", FUSED, "SGD((p for p in ps), fused=True)"),
        ("DataLoader(data, 32, True, None, None, 4)", IN_PROCESS, "DataLoader(data, 32, True, None, None, 0)"),
        ("DDP(m, [0], 0, 0, True)", Treatment("ddp", {"broadcast_buffers": False}), "DDP(m, [0], 0, 0, False)"),
        # What another argument replaces keeps its place; what goes takes its line along
        (
            "AdamW(\n    p,\n    foreach=False,  # slow\n    lr=1,\n)",
            FUSED,
            "AdamW(\n    p,\n    fused=True,  # slow\n    lr=1,\n)",
        ),
        (
            "DataLoader(\n    d,\n    num_workers=8,\n    prefetch_factor=4,  # p\n    persistent_workers=True\n)\n",
            IN_PROCESS,
            "DataLoader(\n    d,\n    num_workers=0,\n)\n",
        ),
        (
            "DataLoader(d, prefetch_factor=4, num_workers=8, shuffle=s)",
            IN_PROCESS,
            "DataLoader(d, num_workers=0, shuffle=s)",
        ),
        # Other spellings of torch's names
        (
            "from torch.utils.data import DataLoader as DL\nx = [DL(d) for d in ds]",
            IN_PROCESS,
            "from torch.utils.data import DataLoader as DL\nx = [DL(d, num_workers=0) for d in ds]",
        ),
        ("import gc as g\nif x:\n\tg.collect()\n\tf()\n", IN_LOOP, "import gc as g\nif x:\n\tf()\n"),
        ("gc.collect(); f()\n", IN_LOOP, "f()\n"),
        (
            "o.zero_grad(False)\np.zero_grad(set_to_none=flag)",
            Treatment("set_to_none"),
            "o.zero_grad()\np.zero_grad(set_to_none=flag)",
        ),
        # Files of other systems and editors
        ("l = DataLoader(\r\n    d,\r\n)\r\n", IN_PROCESS, "l = DataLoader(\r\n    d,\r\n    num_workers=0,\r\n)\r\n"),
        ("\ufeffl = DataLoader(d)\n\f\n", IN_PROCESS, "\ufeffl = DataLoader(d, num_workers=0)\n\f\n"),
        (
            "use = torch.cuda.is_available()\nDataLoader(d, pin_memory=use)",
            Treatment("loader", {"num_workers": 2, "pin_memory": True}),
            "use = torch.cuda.is_available()\nDataLoader(d, pin_memory=use, num_workers=2)",
        ),
    ],
)
def test_only_the_call_changes(before: str, treatment: Treatment, after: str) -> None:
    assert edit(before, (), treatment) == after


def test_only_sums_at_the_lines_stay_on_the_device() -> None:
    source = "total += loss.item()\nseen += loss.item()\nlast = loss.item()\n"
    changed = edit(source, {1, 3}, Treatment("kept_on_device"))
    assert changed == "total += loss.detach()\nseen += loss.item()\nlast = loss.item()\n"
    with pytest.raises(NoEditError, match="no sum of items"):
        edit(source, {3}, Treatment("kept_on_device"))


def test_every_call_at_the_lines_goes() -> None:
    source = "for x in y:\n    gc.collect()\n    f()\n    gc.collect()\ngc.collect()\n"
    assert edit(source, {2, 4}, IN_LOOP) == "for x in y:\n    f()\ngc.collect()\n"


def test_of_several_calls_the_one_at_the_line_is_meant() -> None:
    source = "a = DataLoader(x)\nb = DataLoader(y)\n"
    changed = edit(source, {2}, Treatment("loader", {"num_workers": 2}))
    assert changed == "a = DataLoader(x)\nb = DataLoader(y, num_workers=2)\n"
    with pytest.raises(NoEditError, match="2 calls of DataLoader: it is not known which one"):
        edit(source, (), WORKERS)


@pytest.mark.parametrize(
    ("source", "treatment", "why"),
    [
        ("DataLoader(data, **options)", WORKERS, "from a dictionary"),
        ("x = 1", WORKERS, "0 calls of DataLoader"),
        ("x = (", WORKERS, "cannot be parsed"),
        ("x = gc.collect()", IN_LOOP, "no line is nothing but"),
        ("model()", Treatment("autocast"), "edit it by hand"),
        ("DataLoader(*parts)", WORKERS, "from a list"),
        ("DataLoader(d)\0", WORKERS, "cannot be parsed"),
        ("DataLoader(d, num_workers=0)", Treatment("loader", {"persistent_workers": True}), "has no workers"),
        (
            "DataLoader(d, batch_size=args.size)",
            Treatment("batch", {"size": 64}),
            "`batch_size` is `args.size`: set that to 64",
        ),
        ("DataLoader(d, batch_sampler=s)", Treatment("batch", {"size": 64}), "that of the batch sampler"),
        ("import bitsandbytes as b\nb.optim.Adam(p)", FUSED, "bitsandbytes.optim.Adam is not torch's"),
        ("class DataLoader: pass\nDataLoader(d)", WORKERS, "DataLoader is not torch's"),
        (
            "try:\n    from apex import Adam\nexcept ImportError:\n    from torch.optim import Adam\nAdam(p)",
            FUSED,
            "is not torch's",
        ),
        ("metrics.collect()", IN_LOOP, "no line is nothing but"),
        ("stream.synchronize()", Treatment("calls", {"names": ["torch.cuda.synchronize"]}), "no line is nothing but"),
        ("o.zero_grad(set_to_none=True)", Treatment("set_to_none"), "no call of zero_grad"),
    ],
)
def test_what_cannot_be_written_says_why(source: str, treatment: Treatment, why: str) -> None:
    with pytest.raises(NoEditError, match=why):
        edit(source, (), treatment)


# -- the command


SCRIPT = "import gc\n\nloader = DataLoader(data, batch_size=4)\nfor x in loader:\n    step(x)\n    gc.collect()\n"
FIXED = SCRIPT.replace("batch_size=4", "batch_size=4, num_workers=2, persistent_workers=True").replace(
    "    gc.collect()\n", ""
)


def git(folder: Path, *words: str) -> None:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b",
           "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}  # fmt: skip
    subprocess.run(["git", *words], cwd=folder, env=env, check=True, capture_output=True)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clean working tree with train.py, and beside it the report of a run."""
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / ".gitignore").write_text("advisor-report\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    saving = Saving(2_000.0, 4_000.0, "replayed", "how")
    waits = Finding("", saving, (Source("train.py", 4),), fix=Fix("Set `num_workers=2`", "exact", treatment=WORKERS))
    collects = Finding("", saving, (Source("train.py", 6),), fix=Fix("Remove it", "exact", treatment=IN_LOOP))
    other = Finding("", saving, fix=Fix("Rewrite it", "numerics"))
    stored(tmp_path, {"input-bound": waits, "garbage-collection": collects, "host-work": other})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def stored(folder: Path, found: dict[str, Finding]) -> None:
    """A report of train.py with these findings, made now."""
    outcomes = tuple(Outcome(rule, "found", (one,)) for rule, one in found.items())
    metrics = {"step_time_us": Metric("step_time_us", 10_000.0, "us")}
    report = Report(RunInfo(("train.py",)), (), StepsSummary(), metrics, (), outcomes)
    (folder / "advisor-report").mkdir(exist_ok=True)
    (folder / "advisor-report" / "report.json").write_bytes(encode(report))


def test_the_diff_is_one_that_git_applies(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["fix"]) == 0
    captured = capsys.readouterr()
    assert (folder / "train.py").read_text() == SCRIPT
    assert "no edit: host-work: Rewrite it" in captured.err
    (folder / "fix.diff").write_text(captured.out)
    git(folder, "apply", "fix.diff")
    assert (folder / "train.py").read_text() == FIXED


def test_write_changes_a_clean_work_tree_and_no_other(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "train.py").write_text(SCRIPT + "# mine\n")
    assert cli.main(["fix", "--write"]) == 2
    assert "clean working tree" in capsys.readouterr().err
    assert (folder / "train.py").read_text() == SCRIPT + "# mine\n"
    git(folder, "checkout", "-q", "train.py")
    assert cli.main(["fix", "--write", "--only", "garbage-collection"]) == 0
    assert (folder / "train.py").read_text() == SCRIPT.replace("    gc.collect()\n", "")


def test_lines_that_earlier_edits_moved_and_ends_of_lines_are_kept(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The first edit takes line 4 away; the second is at line 6 of the report, one of two such calls.
    text = "import gc\r\n\r\nwhile x:\r\n    gc.collect()\r\n    \f\r\na = DataLoader(one)\r\nb = DataLoader(two)"
    (folder / "train.py").write_bytes(text.encode())
    git(folder, "commit", "-q", "-a", "-m", "second")
    saved = Saving(2_000.0, 4_000.0, "replayed", "how")
    at = {"garbage-collection": (4, IN_LOOP), "input-bound": (6, IN_PROCESS)}
    stored(folder, {
        rule: Finding("", saved, (Source("train.py", line),), fix=Fix(rule, "exact", treatment=treatment))
        for rule, (line, treatment) in at.items()
    })  # fmt: skip
    assert cli.main(["fix"]) == 0
    diff = capsys.readouterr().out
    assert cli.main(["fix", "--write"]) == 0
    fixed = text.replace("    gc.collect()\r\n    \f", "    pass\r\n    \f").replace("(one)", "(one, num_workers=0)")
    assert (folder / "train.py").read_bytes() == fixed.encode()
    git(folder, "checkout", "-q", "train.py")
    (folder / "fix.diff").write_bytes(diff.encode())
    git(folder, "apply", "fix.diff")
    assert (folder / "train.py").read_bytes() == fixed.encode()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"# -*- coding: latin-1 -*-\n# \xe4\ngc.collect()\n", "train.py is not encoded in UTF-8"),
        (
            b"gc.collect()\nf()\ngc.collect()\n",
            "2 lines are nothing but gc.collect() (it was changed after this report)",
        ),
    ],
)
def test_a_file_of_another_encoding_or_time_is_left_with_the_reason(
    folder: Path, capsys: pytest.CaptureFixture[str], text: bytes, said: str
) -> None:
    made_s = (folder / "advisor-report" / "report.json").stat().st_mtime
    (folder / "train.py").write_bytes(text)
    os.utime(folder / "train.py", (made_s + 10, made_s + 10))
    assert cli.main(["fix", "--only", "garbage-collection"]) == 0
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""
    assert (folder / "train.py").read_bytes() == text


def test_only_takes_rules_that_there_are(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["fix", "--only", "garbage-colection"]) == 2
    assert "did you mean 'garbage-collection'?" in capsys.readouterr().err


def test_a_folder_without_git_is_never_written_to(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GIT_DIR", str(folder / "nowhere"))
    assert cli.main(["fix", "--write"]) == 2
    assert "git working tree" in capsys.readouterr().err
    assert (folder / "train.py").read_text() == SCRIPT
