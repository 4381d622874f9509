"""Optimizers that compute the loss within their step: what is the optimizer's, and what is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.analyses.base.step_rows import marked_by_optimizer
from advisor.analyses.step.host_gaps import HostGaps
from advisor.api import NEXT, ZERO_GRAD, Breakdown, Ev, OptimizerWork, Steps, Trace, draw
from advisor.capture.record import RankRecord, StepTimes
from advisor.computed import Computed
from advisor.trace.read.load import read_bytes

UPDATE = Ev("aten::add_")


def analysed(drawing: dict[str, Any]) -> Computed:
    return Computed(trace=read_bytes(json.dumps(dict(drawing)).encode(), "drawn"))


def parts(computed: Computed) -> dict[str, float]:
    """µs per step of the parts that have any."""
    return {item.id: item.us for item in computed.get(Breakdown).items if item.us}


def test_only_what_follows_the_closure_is_the_optimizers() -> None:
    computed = analysed(
        draw(
            """
            step   [1                          ]
            cpu    [D ][O                      ]
            cpu        [Z][F    ][B    ][U ][U ]
            """,
            us=100,
            D=NEXT,
            Z=ZERO_GRAD,
            U=UPDATE,
        )
    )
    found = parts(computed)
    # Columns of 100 µs: zero_grad 3 and two updates of 4.
    assert found["forward"] == pytest.approx(700)
    assert found["backward"] == pytest.approx(700)
    assert found["optimizer"] == pytest.approx(300 + 800)
    work = computed.get(OptimizerWork)
    assert (work.ops, work.us) == (2, pytest.approx(800))


def test_gradients_that_are_cleared_after_the_forward_pass() -> None:
    """Lightning's closure: training_step, zero_grad, backward."""
    computed = analysed(
        draw(
            """
            step   [1                          ]
            cpu    [D ][O                      ]
            cpu        [F    ][Z][B    ][U ][U ]
            """,
            us=100,
            D=NEXT,
            Z=ZERO_GRAD,
            U=UPDATE,
        )
    )
    found = parts(computed)
    assert found["forward"] == pytest.approx(700)
    assert found["optimizer"] == pytest.approx(300 + 800)
    work = computed.get(OptimizerWork)
    assert (work.ops, work.us) == (2, pytest.approx(800))


def test_a_line_search_keeps_its_own_ops_between_two_closures() -> None:
    computed = analysed(
        draw(
            """
            step   [1                                    ]
            cpu    [O                                    ]
            cpu    [Z][F ][B ][U ][U ][Z][F ][B ][U     ]
            """,
            us=100,
            Z=ZERO_GRAD,
            U=UPDATE,
        )
    )
    assert computed.get(OptimizerWork).ops == 3
    assert parts(computed)["backward"] == pytest.approx(800)


@pytest.mark.torch
def test_a_closure_changes_nothing_of_the_optimizers_own_work(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    def profiled(closure: bool) -> OptimizerWork:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
        optimizer = torch.optim.Adam(model.parameters(), foreach=False)
        x = torch.randn(64, 16)

        def loss() -> Any:
            optimizer.zero_grad()
            value = model(x).square().mean()
            value.backward()
            return value

        step: Callable[[], Any] = (lambda: optimizer.step(loss)) if closure else (lambda: (loss(), optimizer.step()))
        path = tmp_path / f"{closure}.json"
        schedule = torch.profiler.schedule(wait=0, warmup=1, active=3)
        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU],
            schedule=schedule,
            on_trace_ready=lambda done: done.export_chrome_trace(str(path)),
        ) as profile:
            for _ in range(4):
                step()
                profile.step()
        trace: Trace = read_bytes(path.read_bytes(), "real.pt.trace.json")
        if not (trace.events.dur_ns % 1000).any():
            pytest.skip("this torch writes whole microseconds: which short op lies in the other is not always told")
        return Computed(trace=trace).get(OptimizerWork)

    inside, apart = profiled(True), profiled(False)
    assert inside.ops == apart.ops > 0
    assert inside.tensors == apart.tensors == 4


def test_a_recorded_window_without_marks_has_the_steps_of_its_closures() -> None:
    drawing = draw(
        """
        cpu    [O                   ]  [O                   ]  [O                   ]
        cpu    [Z][F ][B ][U ]         [Z][F ][B ][U ]         [Z][F ][B ][U ]
        """,
        us=100,
        Z=ZERO_GRAD,
        U=UPDATE,
    )
    trace = read_bytes(json.dumps(dict(drawing)).encode(), "drawn")
    captured = Computed(trace=trace, record=RankRecord(steps=StepTimes(source="window"))).get(Steps)
    # From step to step 24 columns; where the third ends nobody knows.
    assert (captured.count, captured.source, captured.profiled_us) == (2, "optimizer", (2400.0, 2400.0))
    # So it is in a trace of others.
    assert Computed(trace=trace).get(Steps).profiled_us == captured.profiled_us


_UPDATES = "[F  ][B ][O][F][C][O]" * 4


@pytest.mark.parametrize(
    ("nodes", "steps"),
    [
        # An actor and a critic: the second update of an iteration is no step of its own.
        (("AddmmBackward0", "ConvolutionBackward0"), 3),
        # One network, though every second time something else takes longer (an evaluation, a log).
        (("AddmmBackward0", "AddmmBackward0"), 7),
    ],
)
def test_updates_of_several_optimizers_of_one_name_are_one_iteration(nodes: tuple[str, str], steps: int) -> None:
    first, second = (Ev(f"autograd::engine::evaluate_function: {name}") for name in nodes)
    trace = read_bytes(json.dumps(dict(draw(f"cpu    {_UPDATES}", us=100, B=first, C=second))).encode(), "x")
    marks = marked_by_optimizer(trace.events)
    assert marks is not None
    assert len(marks.spans) == steps
    if steps == 3:
        assert (marks.spans[:, 1] - marks.spans[:, 0] == len(_UPDATES) / 4 * 100_000).all()


def test_what_a_callback_does_behind_the_backward_pass_is_python_of_the_script() -> None:
    computed = analysed(
        draw(
            """
            step   [1                                       ]
            cpu    [D ][O                                   ]
            cpu        [F    ][Z][B    ]     [G]   [H]  [U ]
            """,
            us=100,
            D=NEXT,
            Z=ZERO_GRAD,
            G=Ev("aten::detach"),
            H=Ev("aten::detach"),
            U=UPDATE,
        )
    )
    # Python before ops that look at gradients, 500 and 300 µs, and behind the step; 200 before the update are its own.
    gaps = computed.get(HostGaps)
    assert gaps.us == pytest.approx(1100, abs=1)
    assert parts(computed)["optimizer"] == pytest.approx(300 + 200 + 400, abs=101)
