"""How the process fares, on real scripts: threads beside the loop, memory over the run, losses kept with graphs."""

from __future__ import annotations

import itertools
import runpy
from pathlib import Path
from typing import Any

import pytest
from capture_runs import Captured, capture
from tiers import complete

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from advisor.capture.inside.steps.phases import AFTER, WARM  # noqa: E402
from advisor.capture.inside.steps.vitals import Vitals, used_up  # noqa: E402

SCRIPT = """import sys, threading
import torch
torch.set_num_threads(1)
chosen, kept, total, state = sys.argv[1], [], 0.0, {"done": False}
def count_up():
    number = 0
    while not state["done"]:
        number += 1
def wait():
    while not state["done"]:
        event.wait(0.05)
event = threading.Event()
if chosen in ("busy", "calm"):
    threading.Thread(target=count_up if chosen == "busy" else wait, name="side").start()
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
def step(x):
    global total
    own = locals()
    optimizer.zero_grad()
    parts = [model(x).square().mean() for _ in range(3)]
    loss = parts[0] + parts[1] / 2 + parts[2]
    loss.backward()
    optimizer.step()
    KEEP
    assert own["x"] is x  # what a script keeps of its variables stays
    return loss
for number in range(150):
    step(torch.randn(512, 256))
state["done"] = True
"""


EPISODES = """import torch
torch.set_num_threads(1)
policy = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(policy.parameters(), lr=1e-3)
for number in range(60):
    saved, total = [], 0
    for _ in range(80):
        saved.append(policy(torch.randn(4)).log_softmax(-1)[0])
    for one in saved:
        total = total - one
    optimizer.zero_grad()
    total.backward()
    optimizer.step()
"""


PRODUCTS = """
import sys
import numpy as np
import torch
model = torch.nn.Linear(256, 256)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch, weights = torch.randn(64, 256), np.random.rand(400, 400)
for _ in range(60):
    if sys.argv[1] == "products":
        weights @ weights
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
"""


def run(folder: Path, chosen: str, keep: str = "kept.append(loss.detach())", **options: Any) -> Captured:
    script = folder / "train.py"
    script.write_text(SCRIPT.replace("KEEP", keep))
    done = capture(folder / "out", script, chosen, **options)
    assert done.status == 0, done.err
    assert not done.rank["notes"]
    return done


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    return run(tmp_path_factory.mktemp("vitals"), "busy")


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    env = {"ATEN_CPU_CAPABILITY": "default", "MY_SECRET": "x"}
    return run(tmp_path_factory.mktemp("vitals"), "calm", env=env)


@pytest.mark.complete
def test_a_thread_beside_the_loop_has_its_cpu_time_and_its_function(busy: Captured) -> None:
    vitals = busy.rank["vitals"]
    (side,) = vitals["threads"]
    assert side["name"] == "side"
    assert (Path(side["file"]).name, side["line"], side["function"]) == ("train.py", 5, "count_up")
    assert side["now"] in (7, 8)  # its loop
    # One interpreter lock: the two threads together are no more than the time that passed, and native code beside it.
    assert 0.05 * vitals["timed_us"] < side["cpu_us"] <= 1.05 * vitals["timed_us"]
    assert 0 < vitals["loop_cpu_us"] <= 1.05 * vitals["timed_us"]
    assert side["cpu_us"] + vitals["loop_cpu_us"] <= vitals["process_cpu_us"]


@pytest.mark.complete
@pytest.mark.parametrize(("chosen", "least", "most"), [("products", 0.05, 1.05), *complete(("plain", 0.0, 0.02))])
def test_threads_of_numpy_have_their_cpu_time(tmp_path: Path, chosen: str, least: float, most: float) -> None:
    """Products of NumPy in the loop keep its pool busy; without one its threads sleep, whatever torch's do."""
    script = tmp_path / "train.py"
    script.write_text(PRODUCTS)
    env = {"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    vitals = capture(tmp_path / "out", script, chosen, env=env).rank["vitals"]
    assert least * vitals["timed_us"] <= vitals["numpy_cpu_us"] <= most * vitals["timed_us"]
    assert 0 <= vitals["pool_queued_us"] <= vitals["timed_us"]


def test_where_few_steps_were_timed_those_after_the_window_are() -> None:
    """A short epoch leaves one; the first steps after the window pay for its export, and the next ones are taken."""
    few, many = Vitals(), Vitals()
    for vitals, timed in ((few, 1), (many, 30)):
        vitals.boundary(WARM, 1, 2)
        vitals.timing_ends(2 + timed)
        for count in range(50, 90):
            vitals.boundary(AFTER, 0, count)
    assert few.timed is not None
    assert few.timed["timed_steps"] == 12  # from the 4th to the 16th; the reading after the 8th has too few
    assert many.timed is not None
    assert many.timed["timed_steps"] == 30


def test_threads_are_timed_over_the_unprofiled_steps(calm: Captured) -> None:
    """Independent: the step times themselves, which the two readings enclose."""
    vitals, steps = calm.rank["vitals"], calm.rank["steps"]
    timed = steps["unprofiled_us"][1 : vitals["timed_steps"] - 1]  # the first one may still be a warm-up step
    assert vitals["timed_steps"] >= 5
    assert sum(timed) <= vitals["timed_us"] * 1.02
    assert vitals["timed_us"] < 3 * sum(timed)


def test_a_thread_that_waits_burns_nothing(calm: Captured) -> None:
    rank = calm.rank
    vitals = rank["vitals"]
    assert [one["cpu_us"] < 0.05 * vitals["timed_us"] for one in vitals["threads"]] == [True]
    # The same run: the environment is read by allow-list.
    assert rank["environment"]["ATEN_CPU_CAPABILITY"] == "default"
    assert "MY_SECRET" not in rank["environment"]


def test_memory_is_read_ever_further_apart(calm: Captured) -> None:
    read = calm.rank["vitals"]["memory"]
    assert [one["phase"] for one in read[:2]] == ["timing", "timed"]
    after = [one["step"] for one in read if one["phase"] == "after"]
    gaps = [later - earlier for earlier, later in itertools.pairwise(after)]
    assert gaps == [4 << number for number in range(len(gaps))]
    assert all(one["resident_bytes"] > 50e6 and one["allocated_bytes"] is None for one in read)


def test_the_start_of_the_process_is_known(calm: Captured) -> None:
    vitals = calm.rank["vitals"]
    assert 0 < vitals["first_step_us"] < vitals["age_us"] < 120e6
    assert vitals["ended"]


def test_an_optimizer_says_what_its_state_takes(calm: Captured) -> None:
    (optimizer,) = calm.rank["optimizers"]
    assert (optimizer["dtypes"], optimizer["state_dtypes"], optimizer["state_bytes"]) == (["float32"], [], None)


@pytest.mark.parametrize(
    ("keep", "summed", "name"),
    [
        *complete(("kept.append(loss)", False, "kept")),
        *complete(("total += loss", True, "total"), ("total = 0.9 * total + 0.1 * loss", True, "total")),
    ],
)
def test_losses_kept_with_their_graphs_are_found_with_their_line(
    tmp_path: Path, keep: str, summed: bool, name: str
) -> None:
    done = run(tmp_path, "", keep)
    found = done.rank["kept_graphs"]
    assert (found["summed"], found["name"], Path(found["file"]).name) == (summed, name, "train.py")
    # The variables are the module's, and a function adds to them.
    assert SCRIPT.splitlines()[found["line"] - 1].strip() == "KEEP"
    # On a busy machine the window of numbers is recorded once more, long after they were counted.
    window = min(max(file["steps"].values()) for file in done.rank["files"])
    assert window // 2 <= found["losses"] <= 3 * window


@pytest.mark.complete
def test_what_an_episode_of_one_step_leaves_is_not_kept(tmp_path: Path) -> None:
    """A reinforcement learner has as many numbers with a graph in one step as another script in a hundred."""
    script = tmp_path / "train.py"
    script.write_text(EPISODES)
    done = capture(tmp_path / "out", script)
    assert done.status == 0, done.err
    assert done.rank["steps"]["count"] == 60
    assert done.rank["kept_graphs"] is None


def test_what_one_step_leaves_is_not_kept(calm: Captured) -> None:
    assert calm.rank["kept_graphs"] is None


LOOP = """import torch

def save(state):
    pass

for epoch in range(2):
    for batch in range(3):
        {inner}
    torch.save({{}}, "epoch.pt")
torch.save({{}}, "end.pt")
"""


@pytest.mark.parametrize(
    ("inner", "running", "expected"),
    [
        ("torch.save({}, 'step.pt')", 7, [8]),  # the innermost loop that saves
        ("model.save_pretrained('here')", 8, [8]),
        ("step()  # torch.save", 8, [9]),
        ("picture.save('step.png')", 8, [9]),
        ("step()", 10, []),  # beyond the loops nothing is saved often
        ("step(", 7, []),  # no Python
    ],
)
def test_lines_of_the_loop_that_save_are_read_from_its_text(inner: str, running: int, expected: list[int]) -> None:
    from advisor.capture.inside.facts.model.checkpoint_lines import _in_loops
    from advisor.capture.inside.facts.source.syntax import parsed

    assert _in_loops(parsed(LOOP.format(inner=inner)), running) == expected


@pytest.mark.parametrize(("folder", "lines"), [("mine", [5]), ("overlay/site-packages", [])])
def test_the_loop_of_an_installed_package_is_not_the_users(tmp_path: Path, folder: str, lines: list[int]) -> None:
    from advisor.capture.inside.facts.model.checkpoint_lines import saves

    package = tmp_path / folder / "trainer.py"
    package.parent.mkdir(parents=True)
    package.write_text(
        "def fit(look, trainer):\n    for step in range(1):\n        found = look()\n"
        "        if step:\n            trainer.save_checkpoint()\n    return found\n"
    )
    space = runpy.run_path(str(package))
    assert [one["line"] for one in space["fit"](saves, None)] == lines


@pytest.mark.complete
def test_the_line_that_saves_is_known_although_no_profiled_step_saves(tmp_path: Path) -> None:
    keep = "if number == 140: torch.save(model.state_dict(), 'model.pt')"
    done = run(tmp_path, "", keep)
    # The function that saves is called in the loop; the loop's own text has no such call.
    assert done.rank["saves"] == []
    script = SCRIPT.replace("    KEEP\n", "").replace("    step(torch", f"    {keep}\n    step(torch")
    (tmp_path / "train.py").write_text(script)
    (found,) = capture(tmp_path / "again", tmp_path / "train.py", "").rank["saves"]
    assert script.splitlines()[found["line"] - 1].strip() == keep


UNEVEN = """import time, torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
class Shards(IterableDataset):
    def __iter__(self):
        number = get_worker_info().id
        for _ in range(60):
            time.sleep(0.02 if number == 0 else 0.002)
            yield torch.ones(4)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in DataLoader(Shards(), batch_size=4, num_workers=2):
    model(batch).sum().backward()
    optimizer.step()
"""


@pytest.mark.complete
def test_each_worker_has_its_own_time(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(UNEVEN)
    (loader,) = capture(tmp_path / "out", tmp_path / "train.py").rank["loaders"]
    slow, fast = loader["worker_us"]
    # Four samples a batch: no sleep is shorter than it was asked to be.
    assert slow >= 4 * 20_000
    assert 4 * 2_000 <= fast < slow
    # Sleep is no wait for a core.
    assert loader["core_us"] is None or loader["core_us"] >= 4 * 2_000


def test_a_warning_that_speaks_of_time_is_kept_behind_the_first_ten() -> None:
    from types import SimpleNamespace

    from advisor.capture.inside.collector import Collector

    collector = Collector()
    said = [f"something {number}" for number in range(15)] + ["this is extremely slow", "something else"]
    for text in said:
        collector._warned(SimpleNamespace(filename="train.py", lineno=3, message=text, category=UserWarning), None)
    assert collector.warnings == [f"train.py:3: UserWarning: {text}" for text in [*said[:10], "this is extremely slow"]]


ASKS = """import multiprocessing, time
def serve(remote):
    while True:
        turns = remote.recv()
        began = time.thread_time()
        while time.thread_time() - began < turns * 1e-3:
            pass
        remote.send(time.thread_time() - began)

if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    remotes, ends = zip(*(context.Pipe() for _ in range(2)))
    for end in ends:
        context.Process(target=serve, args=(end,), daemon=True).start()
    import torch
    model = torch.nn.Linear(64, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(80):
        for remote, turns in zip(remotes, (3, 1)):
            remote.send(turns)
        for remote in remotes:
            remote.recv()
        optimizer.zero_grad()
        model(torch.ones(4, 64)).sum().backward()
        optimizer.step()
"""


@pytest.mark.complete
def test_processes_of_the_script_have_their_cpu_time(tmp_path: Path) -> None:
    """Independent: each turn burns three milliseconds in one of them and one in the other, by their own clocks."""
    (tmp_path / "train.py").write_text(ASKS)
    done = capture(tmp_path / "out", tmp_path / "train.py")
    assert done.status == 0, done.err
    vitals = done.rank["vitals"]
    assert vitals["children"] == 2
    assert 3.9 <= vitals["children_cpu_us"] / vitals["timed_steps"] / 1e3 < 6


def test_the_share_of_periods_in_which_a_quota_was_used_up() -> None:
    """Between two readings; without a quota, or without a period between them, it is not known."""
    assert used_up((80, 50), (100, 60)) == 0.5
    assert used_up(None, (100, 60)) is None
    assert used_up((80, 50), (80, 50)) is None
