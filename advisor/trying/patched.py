"""The user's folder with patches applied, in a temporary place: Python files are copied there, all else is linked."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from advisor.errors import AdvisorError, UsageError
from advisor.gate.pairs import Side
from advisor.gate.turns import environment
from advisor.model import Treatment
from advisor.trying.treatments import treated

# Headers of a unified diff, as `diff -u` and git write them.
_HEADER = re.compile(r"^(?:---|\+\+\+|rename from|rename to|copy from|copy to) ([^\t\n]+)", re.MULTILINE)
# A line around a change; editors may have stripped the space of an empty one.
_CONTEXT = re.compile(r"^(?: |$(?!\Z))", re.MULTILINE)
_OWN = ("__pycache__",)  # of each copy


class PatchError(UsageError):
    """Why patches do not apply."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a diff applies. root: the folder that its names begin at; strip: leading parts of its names that go."""

    root: Path
    strip: int


@dataclass(slots=True)
class Mirrors:
    """Makes sides: of patches in copies below `scratch`, each set of patches once; of others as they are."""

    scratch: Path
    made: dict[tuple[str, ...], tuple[Path, Path]] = field(default_factory=dict)

    def side(self, base: Side, treatments: Sequence[Treatment], *, shift: int = 0) -> Side:
        """The side with treatments, patches among them. Raises PatchError where they do not apply together."""
        side = treated(base, treatments, shift=shift)
        if any(one.name == "compile" for one in treatments):
            # Of its own, so that the first start costs what it costs where nothing is cached, and nothing is left.
            caches = {name: str(self.scratch / name) for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")}
            side = replace(side, env={**side.env, **caches})
        diffs = tuple(text for one in treatments if one.name == "patch" for text in one.arguments["diffs"])
        if not diffs:
            return side
        if diffs not in self.made:
            target = self.scratch / str(len(self.made))
            self.made[diffs] = _mirror(base, diffs, target), target
        root, mirror = self.made[diffs]
        files = {str(mirror / name): name for name in names(diffs, root) if (mirror / name).is_file()}
        settings = {**side.settings, "files": files}
        return replace(_moved(side, root, mirror), settings=settings)


def place(diff: str, base: Side) -> Place:
    """Where the diff applies to the files as they are. Raises PatchError, in one line, where it does not."""
    if not _HEADER.search(diff):
        raise PatchError("is not a unified diff: it names no file")
    said = []
    for root in _roots(base):
        for strip in (1, 0):
            failure = _git(root, diff, f"-p{strip}", "--check")
            if not failure:
                return Place(root, strip)
            said.append(failure)
    # Of all the places, the one where its files were found says most.
    best = next((text for text in said if "patch failed" in text or "corrupt" in text), said[0])
    raise PatchError(f"does not apply to the files here: {best}")


def names(diffs: Iterable[str], root: Path) -> list[str]:
    """Files below `root` that the diffs name, those that they would make included."""
    found = [name.strip('"') for diff in diffs for name in _HEADER.findall(diff) if name != "/dev/null"]
    every = dict.fromkeys(way for name in found for way in (name.partition("/")[2], name) if way)
    return [name for name in every if (root / name).is_file() or (root / name).parent.is_dir()]


def _mirror(base: Side, diffs: Sequence[str], target: Path) -> Path:
    """Makes the copy and applies the diffs; returns the folder that it is a copy of."""
    places = [place(diff, base) for diff in diffs]
    root = Path(os.path.commonpath([one.root for one in places]))
    scripts = [(base.folder / word).resolve() for word in base.command if word.endswith(".py")]
    patched = {root / name for one in places for name in names(diffs, one.root)}
    folders = {root, base.folder.resolve(), *(path.parent for path in (*patched, *scripts))}
    real = {up for path in folders for up in (path, *path.parents) if up.is_relative_to(root)}
    _copy(root, target, real, patched)
    for one, diff in zip(places, diffs, strict=True):
        failure = _git(target / one.root.relative_to(root), diff, f"-p{one.strip}")
        if failure:
            raise PatchError(f"the patches do not apply together: {failure}")
    return root


def _copy(source: Path, target: Path, real: Collection[Path], patched: Collection[Path]) -> None:
    """Folders of `real` become folders, Python files and patched ones copies, everything else a link."""
    target.mkdir(parents=True)
    for entry in sorted(source.iterdir()):
        copy = target / entry.name
        if entry.name in _OWN:
            continue
        if entry in real and entry.is_dir():
            _copy(entry, copy, real, patched)
        elif entry.is_file() and (entry.suffix == ".py" or entry in patched):
            shutil.copy2(entry, copy)
        else:
            copy.symlink_to(entry)


def _moved(side: Side, root: Path, mirror: Path) -> Side:
    """The side started in the copy: its folder, its arguments and Python's search path lie there."""

    stays = not side.folder.resolve().is_relative_to(root)

    def there(text: str) -> str:
        path = Path(text)
        # Relative names follow the folder, if that moves.
        moves = path.is_absolute() or (stays and path.suffix == ".py")
        full = (side.folder / path).resolve()
        return str(mirror / full.relative_to(root)) if moves and full.is_relative_to(root) else text

    searched = [
        path for path in dict.fromkeys(sys.path) if path and there(path) != path and "site-packages" not in path
    ]
    # Scripts that note their commit run git, which must not write to the user's index.
    env = {**side.env, "GIT_OPTIONAL_LOCKS": "0"}
    env["PYTHONPATH"] = environment(searched)["PYTHONPATH"]
    # The first word is the interpreter, which may belong to an environment below the folder.
    command = (side.command[0], *map(there, side.command[1:]))
    return replace(side, folder=Path(there(str(side.folder.resolve()))), command=command, env=env)


def _roots(base: Side) -> list[Path]:
    """Folders that a diff's names may begin at: ours, the script's, and the roots of their repositories."""
    scripts = [(base.folder / word).resolve().parent for word in base.command if word.endswith(".py")]
    near = [base.folder.resolve(), *scripts[:1]]
    return list(dict.fromkeys(path for folder in near for path in (folder, *_repository(folder))))


def _repository(folder: Path) -> Iterator[Path]:
    yield from [up for up in (folder, *folder.parents) if (up / ".git").exists()][:1]


def _git(folder: Path, diff: str, *options: str) -> str:
    """Applies the diff below `folder`; returns what is wrong with it, in one line, or nothing."""
    # Without a repository around it git takes names as they are, and leaves out none.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {"GIT_CEILING_DIRECTORIES": str(folder.parent), "LC_ALL": "C"}
    # As `git diff -U0` writes it, without a line around a change: its numbers alone say where it belongs.
    bare = [] if _CONTEXT.search(diff) else ["--unidiff-zero"]
    words = ["git", "apply", "--whitespace=nowarn", *bare, *options, "-"]
    try:
        done = subprocess.run(words, cwd=folder, input=diff.encode(), capture_output=True, check=False, env=env)
    except OSError as failure:
        raise AdvisorError(f"git cannot be started ({failure.strerror}); it is needed to apply a patch") from failure
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return (lines[0].removeprefix("error: ") if lines else "git apply failed") if done.returncode else ""


def scratch() -> tempfile.TemporaryDirectory[str]:
    """The folder of the copies; gone with everything in it at the end, which follows no link."""
    return tempfile.TemporaryDirectory(prefix="advisor-try-")
