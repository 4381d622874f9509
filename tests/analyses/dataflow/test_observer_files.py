"""What capture wrote down of observed steps, read from its file: whole, damaged, of earlier versions."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from advisor.analyses.dataflow.judged_steps import JudgedSteps
from advisor.api import ObservedSteps
from advisor.capture.record import RankRecord, read
from advisor.computed import Computed

SCHEMA = "aten::{}(Tensor self, Tensor other) -> Tensor"


def tensor(number: int) -> list[Any]:
    """A matrix of 2 x 3; tensor and storage have numbers next to each other."""
    return [number, number + 1, 0, 6, 4, "cpu"]


def node(
    number: int, name: str, given: list[Any], made: list[Any], schema: str = "", thread: int = 1
) -> dict[str, Any]:
    """A node as torch's execution-trace observer writes it."""
    return (
        {"id": number, "name": name, "ctrl_deps": 1}
        | {
            key: {
                "values": values,
                "shapes": [[2, 3] if isinstance(one, list) else [] for one in values],
                "types": ["Tensor(float)" if isinstance(one, list) else "Int" for one in values],
                "strides": [[3, 1] if isinstance(one, list) else [] for one in values],
            }
            for key, values in (("inputs", given), ("outputs", made))
        }
        | {
            "attrs": [
                {"name": "tid", "type": "uint64", "value": thread},
                {"name": "op_schema", "type": "string", "value": schema},
            ]
        }
    )


def op(number: int, name: str, given: list[Any], made: int, thread: int = 1) -> dict[str, Any]:
    return node(number, f"aten::{name}", given, [tensor(made)], SCHEMA.format(name), thread)


def step(number: int, first: int, other: int) -> list[dict[str, Any]]:
    """Two products of the weight with itself, an op inside the second; a third one of `other` on another thread."""
    begin = 100 * number
    weight = tensor(10)
    return [
        op(begin + 1, "mul", [weight, weight], first),
        op(begin + 3, "mm", [weight, weight], first + 2),
        op(begin + 2, "mul", [weight, weight], first + 2),
        op(begin + 4, "add", [tensor(first), other], first + 4),
        op(begin + 5, "sub", [weight, weight], first + 6, thread=2),
        node(begin, f"advisor:observed#{number}", [], []),
    ]


def output(other: int = 7) -> list[dict[str, Any]]:
    """The nodes of two steps, with the weight marked before."""
    marks = [
        node(3, "aten::detach", [tensor(10)], [[9, 11, 0, 6, 4, "cpu"]], "aten::detach(Tensor(a) self) -> Tensor(a)"),
        node(2, "advisor:held", [], []),
    ]
    return [*marks, *step(1, 20, other), *step(2, 40, other)]


def write(folder: Path, nodes: Any, held: str = "3", **facts: Any) -> RankRecord:
    """A run folder with a dataflow file; its rank's record."""
    (folder / "dataflow-rank0-7.gz").write_bytes(
        gzip.compress(json.dumps({"schema": "1.1.1", "nodes": nodes}).encode())
    )
    known = {"file": "dataflow-rank0-7.gz", "held": held, "calm": True, **facts}
    (folder / "run.json").write_text(json.dumps({"ranks": [{"pid": 7, "dataflow": known}]}))
    return recorded(folder)


def recorded(folder: Path) -> RankRecord:
    [rank] = read(folder / "run.json").ranks
    return rank


def test_outermost_ops_with_what_the_script_holds(tmp_path: Path) -> None:
    known = Computed(record=write(tmp_path, output()))
    found = known.get(ObservedSteps)
    assert found.why == ""
    assert [[one.name for one in ops] for ops in found.steps] == [
        ["aten::mul", "aten::mul", "aten::add", "aten::sub"]
    ] * 2
    assert [one.place for one in found.steps[1]] == ["loop", "loop", "loop", "elsewhere"]
    assert (found.known, found.still, found.resting, found.asking) == ({(10, 11)}, {11}, {11}, set())
    seen = known.get(JudgedSteps).seen
    assert [seen.names[at] for at in seen.ops] == ["aten::mul", "aten::mul", "aten::add"]
    assert (seen.again, seen.constant, seen.waits) == ([(1, 0)], [0, 1, 2], [[], [], [2]])


@pytest.mark.parametrize(
    ("held", "still", "resting", "asking"),
    [("0", set(), set(), set()), ("1", set(), set(), set()), ("7", {11}, {11}, {11}), ("b", {11}, set(), set())],
    ids=["gone", "written", "with a gradient", "written later"],
)
def test_what_became_of_a_tensor(tmp_path: Path, held: str, still: Any, resting: Any, asking: Any) -> None:
    record = write(tmp_path, output(), held)
    found = Computed(record=record).get(ObservedSteps)
    assert (found.still, found.resting, found.asking) == (still, resting, asking)
    seen = Computed(record=record).get(JudgedSteps).seen
    assert bool(seen.constant) is bool(still)


@pytest.mark.parametrize("held", ["", "33", "x"])
def test_a_record_of_other_steps(tmp_path: Path, held: str) -> None:
    assert Computed(record=write(tmp_path, output(), held)).get(JudgedSteps).seen.why.startswith("dataflow-rank0-7.gz")


ODD = [*output()[:7], node(107, "aten::mm", [[1]], [], SCHEMA), *output()[7:]]
WHOLE = gzip.compress(json.dumps({"nodes": output()}).encode())


@pytest.mark.parametrize(
    "content",
    [
        None, b"", b"no gzip", WHOLE[:-9], WHOLE[: len(WHOLE) // 2], WHOLE[:40] + b"xxxx" + WHOLE[44:],
        *(gzip.compress(one) for one in (b"{", b"[]", b'{"nodes": 3}', b'{"nodes": [{}]}', b'{"nodes": []}')),
        gzip.compress(json.dumps({"nodes": ODD}).encode()),
    ],
    ids=["missing", "empty", "no gzip", "cut", "half", "overwritten", *"abcde", "no tensor"],
)  # fmt: skip
def test_a_damaged_file_costs_what_it_holds(tmp_path: Path, content: bytes | None) -> None:
    """The rest of the record is read; who needs what the file held is told in one line why it is missing."""
    write(tmp_path, output())
    (tmp_path / "dataflow-rank0-7.gz").unlink()
    if content is not None:
        (tmp_path / "dataflow-rank0-7.gz").write_bytes(content)
    record = recorded(tmp_path)
    assert record.pid == 7
    why = Computed(record=record).get(JudgedSteps).seen.why
    assert why.startswith("dataflow-rank0-7.gz")
    assert "\n" not in why


def test_a_name_leads_nowhere_else(tmp_path: Path) -> None:
    """A run.json from elsewhere names a file outside of its folder: that is not read."""
    write(tmp_path, output())
    (tmp_path / "run").mkdir()
    known = {"file": "../dataflow-rank0-7.gz", "held": "3"}
    (tmp_path / "run" / "run.json").write_text(json.dumps({"ranks": [{"dataflow": known}]}))
    assert Computed(record=recorded(tmp_path / "run")).get(JudgedSteps).seen.why.startswith("dataflow-rank0-7.gz")


def test_steps_that_cannot_be_told(tmp_path: Path) -> None:
    nodes = output()
    compiled = [*nodes[:2], node(4, "Torch-Compiled Region: 0/0", [], []), *nodes[2:]]
    assert "compiled code" in Computed(record=write(tmp_path, compiled)).get(JudgedSteps).seen.why
    for one in nodes:
        del one["inputs"]["strides"]
    assert "this version of torch" in Computed(record=write(tmp_path, nodes)).get(JudgedSteps).seen.why


def test_records_of_earlier_versions(tmp_path: Path) -> None:
    """What was judged while the script ran, and stood in run.json, holds; files that held it are not read."""

    def seen(**known: Any) -> Any:
        (tmp_path / "run.json").write_text(json.dumps({"ranks": [{"reused": known}]}))
        return Computed(record=recorded(tmp_path)).get(JudgedSteps).seen

    assert seen(names=["aten::mm"], ops=[0, 0], again=[[1, 0]]).again == [(1, 0)]
    assert "from an earlier version" in seen(file="dataflow-rank0-7.gz").why
    assert "was not recorded" in Computed(record=RankRecord()).get(JudgedSteps).seen.why


@dataclass(frozen=True)
class MatrixProducts:
    """A question of a rule pack's own: how many products of matrices the last observed step ran."""

    count: int

    @classmethod
    def compute(cls, observed: ObservedSteps) -> MatrixProducts:
        return cls(sum(one.name == "aten::mm" for one in observed.steps[-1]) if observed.steps else 0)


def test_a_new_question_needs_nothing_of_capture(tmp_path: Path) -> None:
    """It is put to runs that were recorded before it."""
    nodes = output()
    nodes[7:7] = [op(107, "mm", [tensor(10), tensor(20)], 30)]
    nodes[-1:-1] = [op(207, "mm", [tensor(10), tensor(40)], 50), op(208, "mm", [tensor(10), tensor(50)], 52)]
    assert Computed(record=write(tmp_path, nodes)).get(MatrixProducts).count == 2
    assert Computed(record=RankRecord()).get(MatrixProducts).count == 0
