"""A recorded run as trees of rows: what `advisor run` left of one rank on a CPU."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

FETCH = "enumerate(DataLoader)#"


@dataclass
class Row:
    """One row of the loop's thread. Times in µs from the first row."""

    name: str
    category: str
    start: float
    end: float
    args: dict[str, Any]
    children: list[Row] = field(default_factory=list)

    @property
    def dims(self) -> list[Any]:
        """Shapes of the inputs."""
        return self.args.get("Input Dims") or []

    @property
    def types(self) -> list[str]:
        """Dtypes of the inputs."""
        return self.args.get("Input type") or []

    @property
    def values(self) -> list[str]:
        """Arguments that are no tensors, as text."""
        return self.args.get("Concrete Inputs") or []

    @property
    def is_op(self) -> bool:
        """Whether an op wrote it, not an annotation."""
        return self.category == "cpu_op"

    def all(self) -> list[Row]:
        """Itself and everything inside, in order."""
        return [self, *(below for child in self.children for below in child.all())]


@dataclass
class Step:
    """One training step, or what lies between two (`number` None)."""

    number: int | None
    row: Row


@dataclass
class Recording:
    """The window of one rank.

    steps     those of the window in order, with what lies between them
    lines     the one step whose lines were recorded; None without one
    texts     for each outermost op of `lines`, the text of the script's innermost line
    nodes     of the execution trace, by id; empty without one
    dataflow  the file that they are from
    """

    folder: Path
    run: dict[str, Any]
    rank: dict[str, Any]
    trace: dict[str, Any]
    thread: tuple[Any, Any]
    steps: list[Step]
    lines_trace: dict[str, Any] | None
    lines: list[Step]
    texts: list[str]
    nodes: list[dict[str, Any]]
    dataflow: dict[str, Any] = field(default_factory=dict)


def read(folder: Path, index: int = 0) -> Recording:
    """The recorded run of a folder, as its rank of that index left it. Raises ValueError where it holds no steps."""
    run = json.loads((folder / "run.json").read_text("utf-8"))
    rank = run["ranks"][index]
    by_role = {one["role"]: one["path"] for one in rank["files"]}
    if "profile" not in by_role:
        raise ValueError("no profile")
    trace = _load(folder / by_role["profile"])
    thread, steps = steps_of(trace)
    lines_trace = _load(folder / by_role["lines"]) if "lines" in by_role else None
    lines = steps_of(lines_trace)[1] if lines_trace else []
    flow = rank.get("dataflow") or {}
    observed: dict[str, Any] = {}
    if flow.get("file") and (folder / flow["file"]).exists():
        observed = _load(folder / flow["file"])
    texts = line_texts([step.row for step in lines if step.number is not None])
    return Recording(
        folder, run, rank, trace, thread, steps, lines_trace, lines, texts, observed.get("nodes", []), observed
    )


def _load(path: Path) -> dict[str, Any]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return dict(json.load(file))


def steps_of(trace: dict[str, Any]) -> tuple[tuple[Any, Any], list[Step]]:
    """The thread of the steps, and the steps with what lies between them."""
    events = [e for e in trace["traceEvents"] if e.get("ph") == "X" and e.get("cat") in ("cpu_op", "user_annotation")]
    marks = [e for e in events if e["name"].startswith("ProfilerStep#")]
    if not marks:
        raise ValueError("no steps in the trace")
    thread = (marks[0]["pid"], marks[0]["tid"])
    ours = [e for e in events if (e["pid"], e["tid"]) == thread]
    first = min(float(e["ts"]) for e in marks)
    last = max(float(e["ts"]) + float(e["dur"]) for e in marks)
    rows = [
        Row(
            e["name"],
            e["cat"],
            float(e["ts"]) - first,
            float(e["ts"]) - first + float(e["dur"]),
            dict(e.get("args") or {}),
        )
        for e in ours
        if first <= float(e["ts"]) <= last
    ]
    top = _nested(rows)
    steps = []
    before = 0.0
    for row in top:
        if row.start > before + 0.001:
            steps.append(Step(None, Row("", "gap", before, row.start, {})))
        number = int(row.name.split("#")[1]) if row.name.startswith("ProfilerStep#") else None
        steps.append(Step(number, row))
        before = row.end
    return thread, steps


def _nested(rows: list[Row]) -> list[Row]:
    """Rows by containment: a row belongs to the innermost one that was open when it started."""
    top: list[Row] = []
    stack: list[Row] = []
    for row in sorted(rows, key=lambda one: (one.start, -one.end)):
        while stack and stack[-1].end <= row.start:
            stack.pop()
        if stack:
            row.end = min(row.end, stack[-1].end)
        (stack[-1].children if stack else top).append(row)
        stack.append(row)
    return top


NOISE_US = 1000.0  # what one stretch of host time on one rank may take more than on another for the recording's sake


def steadied(*ranks: list[Step]) -> None:
    """Takes out of the ranks' steps what other processes of the machine added to them.

    Each stretch between two ends of rows becomes the lower quartile of what such stretches took in all steps: alike are
    those inside a row of one name, between rows of the same two names. What stands aside for milliseconds shows in few
    of them. A stretch that comes once a step, and takes longer than the scheduler's turn, stays too long.
    Where ranks differ in a stretch by less than NOISE_US, they had to share cores, and each takes the shortest.
    """
    usual = []
    for steps in ranks:
        found: dict[tuple[str, str, str], list[float]] = {}
        for step in steps:
            for key, us in _stretches(step.row):
                found.setdefault(key, []).append(us)
        usual.append({key: sorted(times)[(len(times) - 1) // 4] for key, times in found.items()})
    for steps, own in zip(ranks, usual, strict=True):
        least = {key: min(each.get(key, us) for each in usual) for key, us in own.items()}
        known = {key: least[key] if us - least[key] < NOISE_US else us for key, us in own.items()}
        for step in steps:
            if step.row.category != "gap":
                _retime(step.row, known)


def _ends(row: Row) -> list[tuple[tuple[str, str, str], float, float]]:
    """The row's own stretches: what they are known by, start and end."""
    inside = f"{row.name} {row.dims}" if row.is_op else row.name.partition("#")[0]
    names = ["", *(child.name for child in row.children), ""]
    starts = [row.start, *(child.end for child in row.children)]
    ends = [*(child.start for child in row.children), row.end]
    keys = [(inside, before, after) for before, after in pairwise(names)]
    return list(zip(keys, starts, ends, strict=True))


def _stretches(row: Row) -> list[tuple[tuple[str, str, str], float]]:
    found = [(key, end - start) for key, start, end in _ends(row)]
    return found + [one for child in row.children for one in _stretches(child)]


def _retime(row: Row, usual: dict[tuple[str, str, str], float]) -> None:
    keys = [key for key, _, _ in _ends(row)]
    at = row.start
    for key, child in zip(keys, row.children, strict=False):
        child.start = at + usual[key]
        _retime(child, usual)
        at = child.end
    row.end = at + usual[keys[-1]]


def outermost(row: Row) -> list[Row]:
    """Ops of a step that no other op holds, in order."""
    if row.is_op:
        return [row]
    return [one for child in row.children for one in outermost(child)]


def line_texts(steps: list[Row]) -> list[str]:
    """The text of the script's innermost line around each outermost op of the steps."""
    cache: dict[str, list[str]] = {}
    texts: list[str] = []

    def text_of(label: str) -> str:
        _, file, line, *_ = label.split("|")
        if file not in cache:
            path = Path(file)
            cache[file] = path.read_text("utf-8", "replace").splitlines() if path.exists() else []
        number = int(line)
        return cache[file][number - 1] if 0 < number <= len(cache[file]) else ""

    def walk(row: Row, text: str) -> None:
        if row.is_op:
            texts.append(text)
            return
        if row.name.startswith("advisor:line|"):
            text = text_of(row.name)
        for child in row.children:
            walk(child, text)

    for step in steps:
        walk(step, "")
    return texts
