"""The script never notices: wrapped against bare, byte for byte."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import capture_runs
import pytest
from capture_runs import AS_USERS_HAVE_IT, COMMAND, FOLLOWS_HOOKED_STEPS, SCRIPTS, Done, advised, bare, capture
from tiers import complete

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

# Everything after the script is the script's, whatever it looks like.
WORDS = ("-q", "--output", "x", "--help", "--", "", "a b", "--steps=3", "-m", "-c", "--quiet")


def both(
    tmp_path: Path,
    *words: str,
    stdin: bytes = b"",
    options: tuple[str, ...] = (),
    env: dict[str, str] | None = None,
) -> tuple[Done, Done]:
    """The bare run and the run under `advisor run --quiet`, each in the same folder."""
    plain = bare(sys.executable, *words, cwd=tmp_path, stdin=stdin, env=env)
    return plain, advised("--quiet", *options, *words, cwd=tmp_path, stdin=stdin, env=env)


def equal(plain: Done, wrapped: Done) -> None:
    assert wrapped.err.decode() == plain.err.decode()
    assert wrapped.out.decode() == plain.out.decode()
    assert wrapped.status == plain.status


@pytest.mark.complete
def test_a_script_sees_nothing_of_us(tmp_path: Path) -> None:
    """argv, __main__, sys.path, environment, stdin, pickling, frames, threads, pools of all three start methods."""
    shutil.copy(SCRIPTS / "facts.py", tmp_path)
    for name in ("advisor", "rules", "reports"):
        (tmp_path / f"{name}.py").write_text("mine = True\n")
    plain, wrapped = both(tmp_path, "facts.py", *WORDS, stdin=b"a line\n")
    equal(plain, wrapped)
    seen = json.loads(wrapped.out)
    assert seen["argv"] == ["facts.py", *WORDS]
    assert seen["spawn"] == seen["fork"] == seen["forkserver"] == [4, 9]


@pytest.mark.complete
def test_modules_and_code_run_as_they_would(tmp_path: Path) -> None:
    """-m package and -c code: names, arguments and paths; the user's own `advisor` module is the user's."""
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    show = (
        "import sys, advisor, torch\nprint(sys.argv, __name__, __spec__ and __spec__.name, sys.path[0], advisor.mine)\n"
    )
    (package / "__main__.py").write_text(show)
    (tmp_path / "advisor.py").write_text("mine = 'the user own module'\n")
    for words in (("-m", "mine", "--quiet", ""), ("-c", show, "-m", "x")):
        plain = bare(sys.executable, *words, cwd=tmp_path)
        wrapped = advised("--quiet", *words, cwd=tmp_path)
        equal(plain, wrapped)
        assert b"the user own module" in plain.out


@pytest.mark.parametrize(
    "how", ["return", *complete("raise", "term", "exit", "exit0", "exit3", "exit-text", "_exit", "interrupt")]
)
def test_every_end_is_the_scripts_own(tmp_path: Path, how: str) -> None:
    """Status, output and traceback as bare, though the window was open; what was recorded is kept."""
    shutil.copy(SCRIPTS / "ends.py", tmp_path)
    options = ("--steps", "1000", "--warmup", "1")
    plain, wrapped = both(tmp_path, "ends.py", how, options=options)
    equal(plain, wrapped)
    if how == "_exit":
        return  # the kernel ends the process on the spot: nothing of anybody runs
    record = json.loads((tmp_path / "advisor-report" / "run.json").read_text())
    (rank,) = record["ranks"]
    (file,) = [one for one in rank["files"] if one["role"] == "profile"]
    assert file["partial"]
    assert len(file["steps"]) > 3
    assert record["exit_status"] == (128 - plain.status if plain.status < 0 else plain.status)


def test_a_signal_to_us_reaches_the_script(tmp_path: Path) -> None:
    """A script that handles SIGTERM decides how it ends, once."""
    script = tmp_path / "handles.py"
    script.write_text(
        "import signal, sys, time\n"
        "def bye(number, frame):\n    print('bye', flush=True)\n    sys.exit(7)\n"
        "signal.signal(signal.SIGTERM, bye)\nprint('ready', flush=True)\ntime.sleep(60)\n"
    )
    process = subprocess.Popen([*COMMAND, "run", "--quiet", str(script)], stdout=subprocess.PIPE, cwd=tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    assert process.stdout.read() == b"bye\n"
    assert process.wait(30) == 7


_INTERRUPTED = """
import gc, signal, sys, time, torch
signal.signal(signal.SIGALRM, signal.default_int_handler)  # as Ctrl-C, at a time of our choice
model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(8)])
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
words = [[number] for number in range(200_000)]  # what a collection looks through
interrupted = 0
for step in range(60):
    optimizer.zero_grad()
    loss = model(torch.randn(512, 256)).square().mean()
    if sys.argv[1] == "gc":
        loss.backward()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.002)  # what follows takes several times as long
        gc.collect() if sys.argv[1] == "gc" else loss.backward()
        time.sleep(0.1)  # on a fast machine the signal comes here
    except KeyboardInterrupt:
        interrupted += 1
    optimizer.step()
print(interrupted)
"""


@pytest.mark.complete
@pytest.mark.parametrize("during", ["backward", "gc"])
def test_an_interrupt_while_c_runs_is_not_lost(tmp_path: Path, during: str) -> None:
    """Python drops what `__del__` and the collector's callbacks raise: none of ours may run when C returns."""
    (tmp_path / "interrupted.py").write_text(_INTERRUPTED)
    wrapped = advised("--quiet", "interrupted.py", during, cwd=tmp_path)
    assert (wrapped.out.decode(), wrapped.err.decode()) == ("60\n", "")


_TOO_LATE = """
import signal, sys, time, torch
class Late(Exception):
    pass
class Watch:
    def late(self, number, *_):
        signal.signal(signal.SIGALRM, signal.SIG_IGN)  # nothing that is registered now leads to this function
        raise Late(number)
sys.unraisablehook = lambda _: None  # Python drops what is raised while a generator is closed, with us or without
watch = Watch()
model = torch.nn.Linear(16, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
data = iter(torch.utils.data.DataLoader(torch.randn(480, 16), batch_size=4))
late = 0
for step in range(120):
    torch.set_grad_enabled(True)  # an optimizer turns it off, and torch itself may be interrupted before it is on again
    try:
        signal.signal(signal.SIGALRM, watch.late)
        if sys.argv[1] == "loader" and step >= 10:
            signal.setitimer(signal.ITIMER_REAL, 0.001)  # a step takes less, what opens or keeps a window far more
        batch = next(data) if sys.argv[1] == "loader" else torch.randn(4, 16)
        loss = model(batch).square().mean()
        if sys.argv[1] == "optimizer" and step >= 10:
            signal.setitimer(signal.ITIMER_REAL, 0.001)
        loss.backward()
        optimizer.step()
        time.sleep(0.1 * (step >= 10))
    except Late:
        late += 1
print(late)
"""


@pytest.mark.complete
@pytest.mark.parametrize("source", ["optimizer", "loader"])
def test_an_alarm_of_the_script_is_its_own_while_we_are_at_work(tmp_path: Path, source: str) -> None:
    """What a signal's handler raises reaches the script, wherever we stand, and capture is whole all the same."""
    (tmp_path / "late.py").write_text(_TOO_LATE)
    wrapped = advised("--quiet", "late.py", source, cwd=tmp_path)
    assert wrapped.err == b""
    assert int(wrapped.out) >= 108  # of 110: on a busy machine one may come where Python itself drops it
    record = json.loads((tmp_path / "advisor-report" / "run.json").read_text())
    assert record["ranks"][0]["notes"] == []


@pytest.mark.complete
def test_what_a_script_sets_before_torch_still_works(tmp_path: Path) -> None:
    """OMP_NUM_THREADS from inside the script: torch is not there before the script asks for it."""
    script = tmp_path / "threads.py"
    script.write_text(
        "import os, sys\nassert 'torch' not in sys.modules\nos.environ['OMP_NUM_THREADS'] = '1'\n"
        "import torch\nprint(torch.get_num_threads())\n"
    )
    # The environment says 2, so that 1 can only come from the script.
    done = advised("--quiet", str(script), cwd=tmp_path, env={"OMP_NUM_THREADS": "2"})
    assert (done.status, done.out) == (0, b"1\n"), done.err


def test_losses_and_weights_are_bitwise_the_same(tmp_path: Path) -> None:
    """Random numbers, shuffling, dropout and workers under seeds: every bit as in the bare run."""
    shutil.copy(SCRIPTS / "seeded.py", tmp_path)
    plain, wrapped = both(tmp_path, "seeded.py", env=AS_USERS_HAVE_IT)
    equal(plain, wrapped)
    assert plain.status == 0
    assert len(plain.out.splitlines()) > 20
    assert (tmp_path / "advisor-report" / "report.json").is_file()


def test_a_sitecustomize_of_the_users_still_runs(tmp_path: Path) -> None:
    """Ours hides it on the path, so ours runs it, and a mistake in it looks as it would without us."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("import sys\nsys.custom = __file__\n")
    script = tmp_path / "asks.py"
    script.write_text("import sys\nprint(sys.custom, sys.modules['sitecustomize'].__file__)\n")
    env = {"PYTHONPATH": str(folder)}
    plain = bare(sys.executable, str(script), cwd=tmp_path, env=env)
    wrapped = advised("--quiet", str(script), cwd=tmp_path, env=env)
    equal(plain, wrapped)
    assert str(folder) in plain.out.decode()
    (folder / "sitecustomize.py").write_text("raise RuntimeError('broken on purpose')\n")
    script.write_text("print('runs all the same')\n")
    plain = bare(sys.executable, str(script), cwd=tmp_path, env=env)
    wrapped = advised("--quiet", str(script), cwd=tmp_path, env=env)
    # The interpreter of `advisor` itself is a Python too, and says the same about that file before it starts ours.
    assert (wrapped.out, wrapped.err) == (plain.out, 2 * plain.err)


@pytest.mark.complete
def test_errors_inside_loader_backward_and_optimizer_look_as_bare(tmp_path: Path) -> None:
    """No frame of ours is on the stack where the user's code or torch raises."""
    shutil.copy(SCRIPTS / "mistakes.py", tmp_path)
    plain, wrapped = both(tmp_path, "mistakes.py")
    equal(plain, wrapped)
    assert len(re.findall(rb"^Traceback", plain.out, re.MULTILINE)) == 6
    assert b"torch_advisor" not in wrapped.out
    assert str(Path("advisor", "capture")) not in wrapped.out.decode()


@pytest.mark.complete
@FOLLOWS_HOOKED_STEPS
def test_torch_compile_sees_nothing_of_us(tmp_path: Path) -> None:
    """Graphs, graph breaks, warnings and weights as bare, through a window and a step whose lines are traced."""
    shutil.copy(SCRIPTS / "compiled.py", tmp_path)
    plain, wrapped = both(tmp_path, "compiled.py")
    assert wrapped.out.decode() == plain.out.decode()
    assert len(wrapped.err.splitlines()) == len(plain.err.splitlines()), wrapped.err.decode()
    (rank,) = json.loads((tmp_path / "advisor-report" / "run.json").read_text())["ranks"]
    assert {file["role"] for file in rank["files"]} == {"profile", "lines"}
    assert rank["compile"]["graphs"] == int(plain.out.split()[0])
    assert rank["settings"]["compiled"] is True


_ON_A_THREAD = """
import os, threading, torch
def train():
    torch.manual_seed(0)
    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for batch in torch.utils.data.DataLoader(torch.randn(480, 16), batch_size=4):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        os.write(2, b"a step\\n")
    print(model.weight.sum().item())
thread = threading.Thread(target=train)
thread.start()
thread.join()
"""


@pytest.mark.complete
def test_a_loop_on_a_thread_hears_nothing(tmp_path: Path) -> None:
    """Kineto complains, at every log level, of a thread that did not import torch.

    Of one that ends while the profiler records as well: on a busy machine the window is recorded once more.
    """
    (tmp_path / "on_a_thread.py").write_text(_ON_A_THREAD)
    plain, wrapped = both(tmp_path, "on_a_thread.py")
    equal(plain, wrapped)
    assert plain.err == b"a step\n" * 120
    (rank,) = json.loads((tmp_path / "advisor-report" / "run.json").read_text())["ranks"]
    assert "profile" in {file["role"] for file in rank["files"]}
    assert rank["notes"] == []


_IN_THE_WINDOW = """
import sys, threading, time, torch
steps, daemon = int(sys.argv[1]), sys.argv[2] == "daemon"
reached = threading.Event()
def train():
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for number, batch in enumerate(torch.utils.data.DataLoader(torch.ones(200, 64), batch_size=4)):
        model(batch).sum().backward()
        optimizer.step()
        time.sleep(0.02)
        if number + 1 == steps:
            reached.set()
            if not daemon:
                return
            time.sleep(600)
thread = threading.Thread(target=train, daemon=daemon)
thread.start()
reached.wait()
if not daemon:
    thread.join()
print("over")
"""


@pytest.mark.parametrize("how", complete("ends", "daemon"))
def test_a_thread_that_ends_inside_the_window_leaves_what_it_recorded(tmp_path: Path, how: str) -> None:
    """It is closed on the thread itself. One that still runs when the process ends cannot be: that is said."""
    (tmp_path / "on_a_thread.py").write_text(_IN_THE_WINDOW)
    done = capture(tmp_path / "out", tmp_path / "on_a_thread.py", "35", how, steps=20)
    assert (done.status, done.out, done.err) == (0, "over\n", "")
    if how == "ends":
        (file,) = done.rank["files"]
        assert file["partial"]
        assert 1 <= len(file["steps"]) < 20
        assert done.rank["notes"] == []
    else:
        assert done.rank["files"] == []
        assert any("its thread was still training" in note for note in done.rank["notes"])


@pytest.mark.parametrize(
    "words",
    [
        ("fork", "1"),
        *complete((("fork", "0"),), (("spawn", "1"),), (("forkserver", "0"),), (("forkserver", "1", "torch"),)),
    ],
)
def test_loader_workers_of_every_start_method(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Batches, their order and the loss as bare; workers are never profiled, their times known where reached."""
    shutil.copy(SCRIPTS / "contexts.py", tmp_path)
    plain, wrapped = both(tmp_path, "contexts.py", *words)
    equal(plain, wrapped)
    assert plain.status == 0
    (rank,) = json.loads((tmp_path / "advisor-report" / "run.json").read_text())["ranks"]
    (loader,) = rank["loaders"]
    assert (loader["context"], loader["persistent_workers"]) == (words[0], words[1] == "1")
    if words[0] == "fork":
        # Every sample sleeps for 2 ms; nobody can have read one faster.
        assert loader["sample_us"] > 2000
        assert loader["collate_us"] > 0
    else:
        assert words[0] in loader["sample_why"]
        assert loader["sample_us"] is None if "sample_us" in loader else True
    assert len(list((tmp_path / "advisor-report").glob("*.trace.json.gz"))) == 2


def test_environment_names_nothing_else_of_us() -> None:
    """One variable and one entry of PYTHONPATH."""
    from advisor.capture.launcher import launch

    target = launch.Target(("python", "x.py"), True)
    known = {"PATH": "/bin", "PYTHONPATH": "/own"}
    made = launch.environment(target, Path("folder"), launch.Options(), known)
    assert set(made) == {"PATH", "PYTHONPATH", "TORCH_ADVISOR_CAPTURE"}
    assert made["PYTHONPATH"].split(os.pathsep)[1:] == ["/own"]
    assert capture_runs.environment(None)["PATH"] == os.environ["PATH"]


DROPPED = """import gc, sys, weakref
import torch
gc.disable()
torch.set_num_threads(1)
class Epoch:
    pass
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
dropped = []
def epoch():
    meter = Epoch()
    dropped.append(weakref.ref(meter))
    for _ in range(5):
        loss = model(torch.randn(4, 8)).square().mean()
        dropped.append(weakref.ref(loss))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
for number in range(60):
    epoch()
print(sum(one() is not None for one in dropped))
"""


def test_what_the_script_drops_is_gone(tmp_path: Path) -> None:
    """Without Python's garbage collector, too: nothing of ours makes a cycle with the frames of the loop."""
    script = tmp_path / "train.py"
    script.write_text(DROPPED)
    done = capture(tmp_path / "out", script)
    assert (done.status, done.out) == (0, "0\n"), done.err
    assert {file["role"] for file in done.rank["files"]} >= {"profile", "lines"}
