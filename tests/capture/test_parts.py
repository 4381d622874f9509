"""The parts of capture that need no torch: the command line, roles of processes, secrets, phases, steps."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from recorder import Recorder

from advisor.capture.inside import bootstrap, process_role
from advisor.capture.inside.facts.source import secrets
from advisor.capture.inside.steps import phases, plan, tracker
from advisor.capture.launcher import launch
from advisor.commands import _script

WITH_VALUE = {"--steps", "--output", "--format"}


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        (["train.py", "--steps", "3"], 0),
        (["--steps", "3", "train.py", "-q"], 2),
        (["--steps=3", "--quiet", "train.py", "--", "--output"], 2),
        (["-m", "pkg", "--output", "x"], 0),
        (["--quiet", "-mpkg"], 1),
        (["-c", "print(1)", "-c"], 0),
        (["--output", "out", "--", "torchrun", "--steps"], 2),
        (["-", "x"], 0),
        (["", "x"], 0),
        ([], 0),
    ],
)
def test_everything_from_the_script_on_is_the_scripts(words: list[str], ours: int) -> None:
    assert _script.split(words, WITH_VALUE) == (words[:ours], words[ours:])


@pytest.mark.parametrize(
    ("command", "script", "role"),
    [
        (["python", "train.py", "--lr", "1"], "train.py", "rank"),
        (["python", "-u", "-m", "pkg.train", "x"], "-m", "rank"),
        (["python", "-m", "other"], "-m", "distributed"),
        (["python", "torchrun", "train.py"], "torchrun", "distributed"),
        (
            ["python", "-c", "from multiprocessing.spawn import spawn_main", "--multiprocessing-fork"],
            "-c",
            "distributed",
        ),
        (["python", "-c", "from multiprocessing.resource_tracker import main;main(4)"], "-c", "never"),
        (["python", "-c", "from multiprocessing.forkserver import main; main(1)"], "-c", "server"),
        (
            [
                "python",
                "-c",
                "from multiprocessing.forkserver import main; main(7, 8, ['__main__'], '/compile_worker/t.py')",
            ],
            "-c",
            "server",
        ),
        (["python", "/x/torch/_inductor/compile_worker/__main__.py"], "/x/__main__.py", "never"),
        (["python"], "", "distributed"),
    ],
)
def test_what_a_process_is(command: list[str], script: str, role: str) -> None:
    settings = {"targets": [os.path.realpath("train.py"), "pkg.train"], "parent": 0}
    assert process_role.role_of(settings, command, script) == role


def test_the_started_process_is_the_rank_whatever_it_runs() -> None:
    assert process_role.role_of({"targets": [], "parent": os.getppid()}, ["python", "-c", "1"], "-c") == "rank"


def test_scripts_are_found_on_any_launchers_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    path = str(tmp_path / "train.py")
    assert launch.targets_of(["torchrun", "--nproc-per-node", "2", "train.py", "other.py"]) == (path,)
    assert launch.targets_of(["python", "-m", "torch.distributed.run", "train.py"]) == (path,)
    assert launch.targets_of(["torchrun", "-m", "pkg.train"]) == ("pkg.train",)
    assert launch.targets_of(["bash", "run.sh"]) == ()


def test_secrets_are_masked() -> None:
    words = [
        "train.py",
        "--hf-token",
        "hf_abcdefghijkl",
        "--api_key=12345",
        "WANDB_API_KEY=67890",
        "--url",
        "https://me:pass@host/x",
        "--lr",
        "0.1",
        "--tokenizer",
        "gpt2",
        "--password",
        "--verbose",
        "ghp_abcdefghijklmnop",
        "--author",
        "me",
    ]
    shown = secrets.mask(words)
    text = " ".join(shown)
    for secret in ("hf_abc", "12345", "67890", "me:pass", "ghp_"):
        assert secret not in text
    for kept in ("train.py", "0.1", "gpt2", "--verbose", "host/x", "--author me"):
        assert kept in text
    assert len(shown) == len(words)
    assert secrets.allowed({"OMP_NUM_THREADS": "2", "AWS_SECRET_ACCESS_KEY": "x"}) == {"OMP_NUM_THREADS": "2"}


def test_phases_in_order() -> None:
    """Warm-up, timing, the profiler's own warm-up, the window with an unclean step in it, lines, timing again."""
    recorder = Recorder()
    machine = phases.Phases(recorder, plan.Plan(warmup=2, timing=5, steps=2, lines=True))
    for number in range(20):
        machine.boundary(number * 1000, True, number != 9, number)
    assert recorder.log == [
        "prepare",
        "start profile",
        *("open 0", "close", "open 1", "close", "open 2", "close"),
        "stop {0: 8, 2: 10} False",
        *("start lines", "open 0", "close", "stop {0: 11} False", "finished"),
    ]
    assert [(end - start) for start, end in machine.before] == [1000] * 5
    assert machine.after
    assert recorder.timed_steps == 5


def test_a_full_window_ends_with_the_step_that_filled_it() -> None:
    """One step instead of three: a whole window, not one that ended early; the step with lines is recorded, once."""
    recorder = Recorder()
    recorder.filled = True
    machine = phases.Phases(recorder, plan.Plan(warmup=2, timing=5, steps=3, lines=True))
    for number in range(20):
        machine.boundary(number * 1000, True, True, number)
    assert recorder.log == [
        *("prepare", "start profile", "open 0", "close", "stop {0: 8} False"),
        *("start lines", "open 0", "close", "stop {0: 9} False", "finished"),
    ]


@pytest.mark.parametrize(("unclean", "opened", "whole"), [(99, ["0", "1"], True), (11, ["0"], False)])
def test_steps_are_observed_after_the_lines(unclean: int, opened: list[str], whole: bool) -> None:
    """What there is counts before that; a step that another loop ran in ends it."""
    recorder = Recorder()
    recorder.observes = 2
    machine = phases.Phases(recorder, plan.Plan(warmup=2, timing=5, steps=2, lines=True))
    for number in range(20):
        machine.boundary(number * 1000, True, number != unclean, number)
    after = recorder.log[recorder.log.index("finished") :]
    assert after == [
        "finished",
        *(one for at in opened for one in (f"open {at}", "close")),
        f"observed {whole}",
        "finished",
    ]
    assert machine.after


def test_a_script_that_ends_while_it_is_observed() -> None:
    recorder = Recorder()
    recorder.observes = 2
    machine = phases.Phases(recorder, plan.Plan(warmup=2, timing=5, steps=2, lines=True))
    number = 0
    while machine.phase != phases.OBSERVED:
        machine.boundary(number * 1000, True, True, number)
        number += 1
    assert machine.interrupt()
    assert recorder.log[-3:] == ["close", "observed False", "finished"]


def test_a_busy_profiler_is_asked_again_and_timing_goes_on() -> None:
    recorder = Recorder()
    recorder.ready = False
    machine = phases.Phases(recorder, plan.Plan(warmup=1, timing=1, steps=1, lines=False))
    for number in range(6):
        machine.boundary(number * 1000, True, True, number)
    assert recorder.log == ["prepare"] * 5
    recorder.ready = True
    for number in range(6, 9):
        machine.boundary(number * 1000, True, True, number)
    assert recorder.log[-2:] == ["stop {0: 8} False", "finished"]


def test_compiling_extends_the_warm_up_but_not_for_ever() -> None:
    """A step that compiled is no step to profile; one that compiles every time is how the script is."""
    recorder = Recorder()
    machine = phases.Phases(recorder, plan.Plan(warmup=1, timing=1, steps=1, lines=False))
    for number in range(20):
        recorder.compiled += 1
        machine.boundary(number * 1000, True, True, number)
    assert (machine.phase, recorder.log) == (phases.WARM, [])
    for number in range(20, 60):
        recorder.compiled += 1
        machine.boundary(number * 1000, True, True, number)
    assert recorder.log[-1] == "finished"


def test_a_window_that_grows_too_large_is_closed_and_kept() -> None:
    """The profiler holds more memory than it may: what was recorded is written, marked partial."""
    recorder = Recorder()
    machine = phases.Phases(recorder, plan.Plan(warmup=1, timing=1, steps=50, lines=False))
    for number in range(8):
        recorder.large = number >= 6
        machine.boundary(number * 1000, True, True, number)
    assert recorder.log[-2:] == ["stop {0: 3, 1: 4, 2: 5, 3: 6} True", "finished"]


@pytest.mark.parametrize(("known", "ranks"), [(3, 1), (10, 1), (60, 1), (500, 1), (None, 1), (60, 4), (1, 1)])
def test_plans_fit_the_epoch(known: int | None, ranks: int) -> None:
    """Warm-up, timing, window and lines end before a known epoch does, where it has at least nine batches."""
    made = plan.plan({}, known, ranks)
    steps = plan.window_steps(made, 1e6)
    assert min(made.warmup, made.timing, steps) >= 1
    if known is not None and known >= 15:
        assert made.warmup + made.timing + steps + 2 <= known
    if ranks > 1:
        assert steps == plan.window_steps(made, 3e9), "ranks choose the same steps whatever their clocks say"


@pytest.mark.parametrize(
    ("known", "step_ms", "expected"),
    [
        (500, 15, 14),  # 0.2 s of them
        (500, 3, 50),
        (500, 0.1, 50),  # never more: the trace must stay readable
        (60, 3, 15),  # a quarter of the epoch
        (None, 3, 20),  # the script may end soon
        (None, 15, 14),
        (500, 20, 5),
        (500, 1999, 5),
        (500, 2000, 3),
    ],
)
def test_short_steps_are_recorded_for_a_fifth_of_a_second(known: int | None, step_ms: float, expected: int) -> None:
    assert plan.window_steps(plan.plan({}, known, 1), step_ms * 1e6) == expected
    assert plan.window_steps(plan.plan({"steps": 7}, known, 1), step_ms * 1e6) == 7


def seen(events: str) -> tuple[tracker.Tracker, list[tuple[bool, bool]]]:
    """After events: a/b ask iterator 1/2, A/B its batch, w a backward, ( and o/p a step begins and ends, u the user."""
    found: list[tuple[bool, bool]] = []
    one = tracker.Tracker(lambda _now, trained, clean: found.append((trained, clean)))
    for event in events.replace(" ", ""):
        if event in "abc":
            one.asked(ord(event))
        elif event in "ABC":
            one.given(ord(event.lower()))
        elif event == "w":
            one.backward()
        elif event in "op":
            if not one.stepping:
                one.stepping_begins()
            one.stepped(ord(event))
        elif event == "(":
            one.stepping_begins()
        elif event == "u":
            one.user_stepped()
    one.finish()
    return one, found


@pytest.mark.parametrize(
    ("events", "source", "count", "evaluated"),
    [
        ("aAwo aAwo aAwo a", "loader", 3, 0),
        ("bB bB b aAwo aAwo aAwo a bB bB b", "loader", 3, 4),  # validation before and after
        ("aAwo aAwo bB bB b aAwo aAwo a", "loader", 4, 2),  # and inside
        ("aA bB wo aA bB wo aA bB wo a", "loader", 3, 0),  # two loaders side by side
        ("aAaA wwo aAaA wwo aAaA wwo a", "loader", 3, 0),  # several batches fetched at once
        ("aAaA wo aA wo aA wo a wo", "loader", 4, 0),  # one batch ahead, as accelerate does
        ("aAw aAw aAwo aAw aAw aAwo a", "loader", 6, 0),  # accumulation
        ("wo wo wo wo wo", "optimizer", 5, 0),
        ("wp wo wp wo wp wo wp wo", "optimizer", 4, 0),  # two optimizers: the first leads
        ("wop wop wop wop", "optimizer", 4, 0),  # the same, both after one backward
        ("wp wp wo wp wp wo wp wp wo wp wp wo", "optimizer", 8, 0),  # the one that steps most often leads
        ("aAwou aAwou aAwou a", "user", 3, 0),
        ("wou wou wou wou", "user", 4, 0),
        ("w w w w w", "", 0, 0),
        ("(wwo (wwo (wwo (wwo", "", 0, 0),  # closures without a loader: no point between two steps
        ("w(wo w(wo w(wo w(wo w(wo", "optimizer", 5, 0),  # sharpness-aware: one backward before each step, one inside
        ("w(wwo (wwo (wwo (wwo (wwo", "", 0, 0),  # one look at the loss before the first of them tells nothing
        ("aA(wwo aA(wwo aA(wwo a", "loader", 3, 0),
        ("aA aA aA a", "", 0, 3),
    ],
)
def test_steps_by_events(events: str, source: str, count: int, evaluated: int) -> None:
    one, _ = seen(events)
    assert (one.source, one.count, one.eval_count()) == (source, count, evaluated)


def test_steps_around_another_loop_are_not_clean() -> None:
    """The step after which validation ran has no end of its own: counted, never timed."""
    _, found = seen("aAwo aAwo aAwo bB bB b aAwo aAwo a")
    # The first boundary settles the source; then steps 2 and 3, the validation, and steps 4 and 5.
    assert found == [(False, False), (True, True), (True, False), (False, False), (True, True), (True, True)]


def test_run_json_is_assembled_from_parts(tmp_path: Path) -> None:
    for rank, pid in ((1, 11), (0, 12)):
        part = {"rank": rank, "pid": pid, "versions": {"torch": "2.15"}}
        (tmp_path / f"{pid}.part.json").write_text(json.dumps(part))
    (tmp_path / "13.part.json").write_text("{ cut off")
    record = launch.assemble(tmp_path, {"command": ["x"], "exit_status": 0})
    assert [rank["rank"] for rank in record["ranks"]] == [0, 1]
    assert record["versions"] == {"torch": "2.15"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.json"]
    from advisor.capture.record import read

    assert read(tmp_path / "run.json").exit_status == 0


def test_capture_starts_without_torch_or_our_dependencies() -> None:
    """What runs in the user's process before torch is the standard library alone."""
    import subprocess

    folder = Path(bootstrap.__file__).parent
    code = (
        "import importlib.util, json, sys\n"
        f"path, folder = {str(folder / '__init__.py')!r}, {str(folder)!r}\n"
        "find = importlib.util.spec_from_file_location\n"
        "spec = find('_torch_advisor', path, submodule_search_locations=[folder])\n"
        "module = importlib.util.module_from_spec(spec); sys.modules['_torch_advisor'] = module\n"
        "spec.loader.exec_module(module)\nimport _torch_advisor.bootstrap as child\n"
        "child.start(json.dumps({'targets': [], 'parent': 0, 'folder': '.'}))\n"
        "foreign = {'torch', 'numpy', 'pandas', 'msgspec', 'rich', 'jinja2', 'advisor', 'pathlib', 'subprocess'}\n"
        "print(sorted(foreign & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
