"""The phases of a CPU step, on drawings and on a trace that torch records here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from advisor.api import (
    BACKWARD,
    GLOO,
    NEXT,
    OPTIMIZER,
    ZERO_GRAD,
    Breakdown,
    Ev,
    HostGaps,
    InputWaits,
    Matmuls,
    Ops,
    OptimizerWork,
    Steps,
    Trace,
    draw,
)
from advisor.capture.record import RankRecord, StepTimes
from advisor.computed import Computed
from advisor.report.metrics import measure
from advisor.trace.read.load import load, read_bytes


def analysed(drawing: dict[str, Any]) -> Computed:
    return Computed(trace=read_bytes(json.dumps(dict(drawing)).encode(), "drawn"))


def parts(drawing: dict[str, Any]) -> dict[str, float]:
    """µs per step of the parts that have any."""
    breakdown = analysed(drawing).get(Breakdown)
    assert not breakdown.on_device
    assert sum(item.share for item in breakdown.items) == pytest.approx(1)
    return {item.id: pytest.approx(item.us) for item in breakdown.items if item.us}


def test_a_step_of_all_phases() -> None:
    drawing = draw(
        """
        step   [1                                      ]
        cpu    [D    ][Z][F   ] [L][B  ][B  ][I] [O    ]
        """,
        us=100,
        D=NEXT,
        Z=ZERO_GRAD,
        L="aten::cross_entropy_loss",
        I="aten::item",
    )
    assert parts(drawing) == {
        "input": 700,
        "forward": 600 + 300,
        "backward": 1000,
        "optimizer": 300 + 700,
        "other_ops": 300,
        "host": 200,
    }


def test_zero_grad_between_loss_and_backward_leaves_the_forward_pass_whole() -> None:
    drawing = draw("step [1              ]\ncpu  [F ][Z][B ][O ]", us=100, Z=ZERO_GRAD)
    assert parts(drawing)["forward"] == 400


def _by_optimizer(drawing: dict[str, Any], source: str = "optimizer") -> dict[str, float]:
    """µs per step of the parts, where capture told the steps by their optimizer, or by that source."""
    record = RankRecord(steps=StepTimes(source=source))
    computed = Computed(trace=read_bytes(json.dumps(dict(drawing)).encode(), "drawn"), record=record)
    return {item.id: pytest.approx(item.us) for item in computed.get(Breakdown).items if item.us}


def _graph(number: int) -> Ev:
    return Ev("aten::linear", args={"Sequence number": number, "Fwd thread id": 0})


def test_a_step_told_by_its_optimizer_ends_within_a_forward_pass() -> None:
    """Such a step runs from backward pass to backward pass; what precedes the second is its forward pass."""
    drawing = draw(
        """
        step   [1                     ][2                     ]
        cpu    [B   ][O ] [F ][L ]     [C   ][O ] [G ][M ]     [D   ]
        """,
        us=100,
        **{"B": BACKWARD, "C": BACKWARD, "D": BACKWARD, "O": OPTIMIZER},
        F=_graph(1),
        L=_graph(2),
        G=_graph(3),
        M=_graph(4),
    )
    assert _by_optimizer(drawing) == {"backward": 600, "optimizer": 400, "forward": 800, "host": 600}


def test_a_step_told_by_its_backward_pass_ends_within_a_forward_pass() -> None:
    """Weights are updated by ops without a graph (U) after the backward pass: those are no forward pass."""
    drawing = draw(
        """
        step   [1                     ][2                     ]
        cpu    [B   ][U ] [F ][L ]     [C   ][U ] [G ][M ]     [D   ]
        """,
        us=100,
        **{"B": BACKWARD, "C": BACKWARD, "D": BACKWARD, "U": Ev("aten::add_")},
        F=_graph(1),
        L=_graph(2),
        G=_graph(3),
        M=_graph(4),
    )
    expected = {"backward": 600, "other_ops": 400, "forward": 800, "host": 600}
    assert _by_optimizer(drawing, "backward") == expected


def test_an_evaluation_before_the_forward_pass_is_none() -> None:
    """It runs without a graph; reading its result, with gradients on again, makes no node either."""
    drawing = draw(
        """
        step   [1                           ][2                           ]
        cpu    [B   ][O ][E ][I ][F ][L ]    [C   ][O ][E ][I ][G ][M ]    [D   ]
        """,
        us=100,
        **{"B": BACKWARD, "C": BACKWARD, "D": BACKWARD, "O": OPTIMIZER},
        E=Ev("aten::linear"),
        I=Ev("aten::item", args={"Sequence number": 7, "Fwd thread id": 0}),
        F=_graph(7),
        L=_graph(8),
        G=_graph(7),
        M=_graph(8),
    )
    assert _by_optimizer(drawing) == {"backward": 600, "optimizer": 400, "forward": 800, "other_ops": 800, "host": 400}


def test_ops_that_no_backward_follows_are_other_ops() -> None:
    drawing = draw("step [1       ]\ncpu  [F ][O ]", us=100)
    assert parts(drawing) == {"optimizer": 400, "other_ops": 400, "host": 200}


def test_the_engine_between_its_nodes_is_backward() -> None:
    drawing = draw("step [1              ]\ncpu  [F ][B ]  [B ]", us=100)
    assert parts(drawing)["backward"] == 1000


def test_communication_that_computing_hides_is_not_counted() -> None:
    drawing = draw(
        """
        step   [1                  ]
        cpu    [F   ][B   ]    [O  ]
        cpu 2         [G      ]
        """,
        us=100,
        G=GLOO,
    )
    found = parts(drawing)
    assert found["communication"] == 400
    assert found["backward"] == 600


def test_an_op_that_waits_for_communication_does_not_hide_it() -> None:
    """As DDP on gloo writes it: c10d::allreduce_ inside a node of the engine, the transfer on another thread."""
    drawing = draw(
        """
        step   [1                     ]
        cpu    [F   ][B              ]
        cpu            [A          ]
        cpu 2          [G           ]
        """,
        us=100,
        A=Ev("c10d::allreduce_", launches=""),
        G=GLOO,
    )
    assert parts(drawing)["communication"] == 1300


def test_python_of_the_optimizer_is_the_optimizers() -> None:
    drawing = draw("step [1          ]\ncpu  [O         ]\ncpu   [A]  [A]", us=100, A=Ev("aten::add_", launches=""))
    assert parts(drawing)["optimizer"] == 1200


TRAINING = """
import torch
from torch import nn
from torch.profiler import profile, schedule, ProfilerActivity

def collate(rows):
    return torch.stack([row[0] for row in rows]), torch.stack([row[1] for row in rows])

data = torch.utils.data.TensorDataset(torch.randn(96, 3, 16, 16), torch.randint(0, 5, (96,)))
loader = torch.utils.data.DataLoader(data, batch_size=8, collate_fn=collate)
net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 5))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
steps = schedule(wait=1, warmup=1, active=6, repeat=1)
with profile(activities=[ProfilerActivity.CPU], schedule=steps, record_shapes=True) as prof:
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(inputs), labels)
        loss.backward()
        optimizer.step()
        loss.item()
        sum(i * i for i in range(30_000))
        prof.step()
prof.export_chrome_trace(PATH)
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Computed:
    pytest.importorskip("torch")
    path = tmp_path_factory.mktemp("recorded") / "cpu.pt.trace.json"
    exec(compile(TRAINING, "training.py", "exec"), {"PATH": str(path), "__name__": "training"})
    return Computed(trace=load(path))


@pytest.mark.torch
def test_a_recorded_training_step_has_all_its_phases(recorded: Computed) -> None:
    breakdown = recorded.get(Breakdown)
    assert recorded.get(Steps).count == 6
    assert sum(item.share for item in breakdown.items) == pytest.approx(1)
    for part in ("input", "forward", "backward", "optimizer", "host"):
        assert breakdown.us(part) > 0, part
    assert breakdown.us("communication") == 0
    # The sum over 30,000 squares runs in no op.
    assert recorded.get(HostGaps).us > 300


@pytest.mark.torch
def test_figures_of_a_recorded_step_are_those_of_its_rows(recorded: Computed) -> None:
    """Counted again from the JSON, row by row."""
    trace = json.loads(Path(recorded.get(Trace).path).read_text("utf-8"))["traceEvents"]
    rows = [event for event in trace if event.get("ph") == "X"]
    steps = [event for event in rows if event["name"].startswith("ProfilerStep#")]
    low, high = min(s["ts"] for s in steps), max(s["ts"] + s["dur"] for s in steps)
    inside = [event for event in rows if low <= event["ts"] < high]
    ops = [event for event in inside if event["cat"] == "cpu_op"]
    assert recorded.get(Ops).per_step == len(ops) / 6
    fetches = [e for e in inside if e["name"].startswith("enumerate(DataLoader)#")]
    waits = recorded.get(InputWaits)
    assert waits.us == pytest.approx(sum(e["dur"] for e in fetches) / 6, rel=1e-4)
    assert waits.exposed_us == waits.us
    assert waits.single_process
    updates = [e for e in inside if e["name"].startswith("Optimizer.step#")]
    work = recorded.get(OptimizerWork)
    assert (work.name, work.calls, work.loop) == ("SGD", 1, True)
    assert work.us == pytest.approx(sum(e["dur"] for e in updates) / 6, rel=1e-4)
    assert work.tensors == 4


@pytest.mark.torch
def test_a_cpu_step_reports_its_fp32_work_and_no_device(recorded: Computed) -> None:
    metrics = measure(recorded)
    share = metrics["fp32_matmul_share"].value
    assert share is not None
    assert 0 < share < 1
    assert recorded.get(Matmuls).evidence == "dtypes"
    assert metrics["device_idle_share"].status == "not_measured"
    assert metrics["optimizer_steps_per_step"].value == 1
