"""What a measured script writes is taken back, and nothing else: files, folders, links, checkpoints that it resumes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.gate import pairs, undo
from advisor.gate.pairs import Side
from advisor.gate.turns import environment

CHANGES = """
import os, pathlib, shutil, tempfile
here = pathlib.Path.cwd()
(here / "new" / "deep").mkdir(parents=True)
(here / "new" / "deep" / "a.txt").write_text("a")
(here / "new" / "b.txt").write_text("b")
os.replace(here / "new" / "b.txt", here / "new" / "c.txt")
(here / "kept.txt").write_text("changed")
with open(here / "log.txt", "a") as file:
    file.write("one more line")
os.remove(here / "gone.txt")
os.remove(here / "link")
shutil.rmtree(here / "tree")
os.rename(here / "old", here / "newer")
(here / "newer" / "more.txt").write_text("more")
os.rename(here / "first.txt", here / "second.txt")
descriptor, name = tempfile.mkstemp(dir=here)
os.write(descriptor, b"x")
print(tempfile.mkdtemp())
pathlib.Path("relative.txt").write_text("r")
os.symlink("kept.txt", here / "another")
if os.fork() == 0:
    (here / "forked.txt").write_text("f")
    os._exit(0)
os.wait()
os.chdir("new")
pathlib.Path("relative.txt").write_text("r")
"""


def contents(folder: Path) -> dict[str, str]:
    """Every path below the folder with what it holds; a link with what it leads to."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        found[name] = str(path.readlink()) if path.is_symlink() else path.read_text() if path.is_file() else "folder"
    return found


def run(folder: Path, text: str, place: str) -> str:
    (folder / "script.py").write_text(text)
    setting = json.dumps({"undo": place, "folder": place, "turns": place})
    env = environment() | {"TORCH_ADVISOR_CAPTURE": setting}
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=folder, env=env, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    for name in ("tree/inner/x.txt", "old/y.txt", "kept.txt", "log.txt", "gone.txt", "first.txt"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(f"{name} as it was")
    (work / "link").symlink_to("gone.txt")
    (work / "script.py").write_text(CHANGES)
    return work


def test_every_change_of_a_script_is_taken_back(folder: Path) -> None:
    before, changed = contents(folder), (folder / "log.txt").stat().st_mtime_ns
    with undo.journal() as (place, left):
        temporary = run(folder, CHANGES, place)
        assert contents(folder) != before
        # Files of others stay, whenever they were made.
        (folder / "mine.txt").write_text("mine")
    assert left == []
    assert not Path(temporary).exists()
    assert contents(folder) == before | {"mine.txt": "mine"}
    assert (folder / "log.txt").stat().st_mtime_ns == changed


def test_a_folder_that_holds_files_of_others_stays_and_is_told(folder: Path) -> None:
    with undo.journal() as (place, left):
        run(folder, "import os; os.mkdir('out'); open('out/ours.txt', 'w').close()", place)
        (folder / "out" / "theirs.txt").write_text("theirs")
    assert left == [str(folder / "out")]
    assert [path.name for path in (folder / "out").iterdir()] == ["theirs.txt"]


def test_two_processes_that_write_one_file_leave_what_was_there(folder: Path) -> None:
    before = contents(folder)
    with undo.journal() as (place, _):
        for number in range(2):
            run(folder, f"for name in ('kept.txt', 'both.txt'): open(name, 'w').write('{number}')", place)
    (folder / "script.py").write_text(CHANGES)
    assert contents(folder) == before


DOWNLOADS = """
import os
os.makedirs("data/raw")
open("data/part", "w").write("x" * 2_000_000)
os.replace("data/part", "data/raw/images")
open("data/raw/labels", "w").write("x")
os.makedirs("runs/1")
open("runs/1/settings", "w").write("x")
open("kept.txt", "w").write("x" * 2_000_000)
"""


def test_of_a_first_start_downloads_stay(folder: Path) -> None:
    before = contents(folder)
    with undo.journal("downloads") as (place, left):
        run(folder, DOWNLOADS, place)
    (folder / "script.py").write_text(CHANGES)
    assert left == []
    assert sorted(contents(folder).keys() - before.keys()) == ["data", "data/raw", "data/raw/images", "data/raw/labels"]
    assert (folder / "kept.txt").read_text() == before["kept.txt"]


RESUMES = """
import os
import torch
from torch import save

torch.set_num_threads(1)
os.makedirs("run", exist_ok=True)
model = torch.nn.Linear(8, 2)
first = 0
if os.path.exists("run/last.pt"):
    state = torch.load("run/last.pt")
    model.load_state_dict(state["model"])
    first = state["step"] + 1
assert first == 0, f"resumed at {first}"
data = torch.utils.data.TensorDataset(torch.randn(800, 8))
for step, (x,) in enumerate(torch.utils.data.DataLoader(data, batch_size=4), start=first):
    model(x).sum().backward()
    save({"model": model.state_dict(), "step": step}, "run/last.pt")
    torch.save(model.state_dict(), open("run/also.pt", "wb"))
"""


@pytest.mark.complete
@pytest.mark.torch
def test_a_start_never_resumes_from_the_checkpoint_of_another(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(RESUMES)
    side = Side("base", (sys.executable, "train.py"), tmp_path, environment(), settings={"undo": "downloads"})
    pairs.look(side, 10, None)
    assert contents(tmp_path) == {"train.py": RESUMES}
    pairs.look(side, 10, None)  # fails where it resumes
    assert contents(tmp_path) == {"train.py": RESUMES}
