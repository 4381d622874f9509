"""Traces changed in what they do not say: the same is told of them; of a forward pass nothing that is for training."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from altered_traces import FORMS, SAME, Alteration, forward_only
from benchmarks.gpu.unaltered_advice import differences, told
from drawn_loops import report, run
from host_and_device import Machine

from advisor.model import Report


def _read(machine: Machine, fixed: bool) -> None:
    """Layers, and a value that the host reads and works on."""
    machine.layers(20, 60)
    machine.read()
    machine.python(900)


def _updated(machine: Machine, fixed: bool) -> None:
    """A forward pass, its node of the backward pass, and an update on lists."""
    with machine.op("aten::addmm", **{"Sequence number": 7}):
        machine.work("ampere_bf16_s16816gemm_bf16_128x128_tn", 400)
    with machine.op("autograd::engine::evaluate_function: AddmmBackward0", **{"Sequence number": 7}):
        machine.work("ampere_bf16_s16816gemm_bf16_128x128_tn", 800)
    start = machine.now
    for name in ("mul_", "lerp_", "mul_", "addcmul_", "sqrt", "div_", "add_", "addcdiv_"):
        with machine.op(f"aten::_foreach_{name}"):
            machine.work("multi_tensor_apply_kernel", 100)
    name = "Optimizer.step#AdamW.step"
    row = {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1, "args": {}}
    machine.rows.append(row | {"ts": start, "dur": machine.now - start})


_LOOPS = {"read": (_read, "sync-in-loop"), "updated": (_updated, "foreach-optimizer")}


@cache
def document(loop: str) -> dict[str, Any]:
    return dict(json.loads(run(_LOOPS[loop][0]).trace()))


@cache
def unaltered(loop: str) -> Report:
    return report(json.dumps(document(loop)).encode())


@pytest.mark.parametrize("loop", _LOOPS)
def test_how_a_trace_is_written_changes_nothing(loop: str) -> None:
    assert _LOOPS[loop][1] in {outcome.rule for outcome, _ in unaltered(loop).findings()}
    changed = document(loop)
    for alteration in SAME:
        changed = alteration.of(changed)
    assert not differences(told(unaltered(loop)), told(report(json.dumps(changed).encode())))


@pytest.mark.parametrize("alteration", FORMS, ids=lambda one: one.name)
def test_forms_of_others_change_nothing(alteration: Alteration) -> None:
    after = report(json.dumps(alteration.of(document("read"))).encode())
    assert not differences(told(unaltered("read")), told(after))


@pytest.mark.complete
@pytest.mark.parametrize("alteration", SAME, ids=lambda one: one.name)
@pytest.mark.parametrize("loop", _LOOPS)
def test_each_change_alone_changes_nothing(loop: str, alteration: Alteration) -> None:
    after = report(json.dumps(alteration.of(document(loop))).encode())
    assert not differences(told(unaltered(loop)), told(after))


def test_of_a_forward_pass_nothing_is_said_that_is_for_training() -> None:
    said = report(json.dumps(forward_only(document("updated"))).encode())
    assert "forward-only" in {item.id for item in said.health}
    training = {"loop-optimizer", "foreach-optimizer", "gradients-set-to-zero", "unused-gradients"}
    assert not training & {outcome.rule for outcome, _ in said.findings()}
