"""What one fused optimizer step takes on a CPU, beside one that loops over the parameters."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from advisor.api import Optimizer, constant


class _Cost(Struct, frozen=True):
    """Measured on a Xeon with PyTorch 2.15 and one thread, 10 to 150 tensors of 100 to 1,000,000 elements each.

    The upper end of `fused_us` and the lower one of `fused_ns` are of three training scripts with two threads, where
    other work ran between two steps; two threads were not measured by themselves.

    tensor_us, fused_us   for each parameter: op by op, and fused with its state at hand or not
    element_ns, far_ns    for each element: op by op with the state in the caches, and of tensors that do not stay there
    fused_ns              for each element, fused
    states                tensors of its size that each parameter has as state
    """

    tensor_us: float
    element_ns: tuple[float, float]
    far_ns: float
    fused_us: tuple[float, float]
    fused_ns: tuple[float, float]
    states: int


def _cost(name: str, states: int) -> _Cost:
    """From the table of constants."""
    known = {one: constant(f"optimizer.{name}_{one}") for one in ("element_ns", "fused_us", "fused_ns")}
    return _Cost(
        constant(f"optimizer.{name}_tensor_us").value,
        known["element_ns"].range,
        constant(f"optimizer.{name}_far_ns").value,
        known["fused_us"].range,
        known["fused_ns"].range,
        states,
    )


_COSTS = {"Adam": _cost("adam", 2), "AdamW": _cost("adamw", 2), "SGD": _cost("sgd", 1), "Adagrad": _cost("adagrad", 1)}
# A step of an optimizer that has nothing to do: hooks, groups, code that comes from memory. The same in either form.
_STEP_US = constant("calls.optimizer_step_us").range
# Tensors of this many elements in the mean have a large one among them, whose ops fetch memory anew for each result;
# state of so many elements in all is past the caches.
_FAR, _ALL_FAR = 100_000, 4_000_000


def kept_share(name: str, optimizers: Sequence[Optimizer], threads: int) -> tuple[float, float] | None:
    """(least, most) share of the loop's time that the fused form takes; None where nothing was measured or is known."""
    cost = _COSTS.get(name)
    mine = [one for one in optimizers if one.name == name and not one.fused]
    if cost is None or not mine:
        return None
    shares = [_share(cost, one, threads) for one in mine]
    known = [share for share in shares if share is not None]
    if len(known) < len(mine):
        return None
    return min(low for low, _ in known), max(high for _, high in known)


def fused_us(one: Optimizer, threads: int) -> tuple[float, float] | None:
    """(least, most) µs of a fused step of this optimizer in few groups; None where nothing was measured or is known."""
    cost = _COSTS.get(one.name)
    if cost is None or not one.tensors or not one.state_bytes or set(one.state_dtypes) != {"float32"}:
        return None
    return _fused(cost, one.tensors, one.state_bytes / 4 / cost.states, threads)


def _fused(cost: _Cost, tensors: int, elements: float, threads: int) -> tuple[float, float]:
    # Threads share the elements at best.
    return (
        _STEP_US[0] + cost.fused_us[0] * tensors + cost.fused_ns[0] / max(threads, 1) * elements / 1e3,
        _STEP_US[1] + cost.fused_us[1] * tensors + cost.fused_ns[1] * elements / 1e3,
    )


def _share(cost: _Cost, one: Optimizer, threads: int) -> tuple[float, float] | None:
    if not one.tensors or not one.state_bytes or set(one.state_dtypes) != {"float32"}:
        return None
    elements = one.state_bytes / 4 / cost.states
    far = elements / one.tensors >= _FAR or elements >= _ALL_FAR
    fastest_ns, slowest_ns = (cost.element_ns[1], cost.far_ns) if far else cost.element_ns
    loop = (
        _STEP_US[1] + cost.tensor_us * one.tensors + fastest_ns * elements / 1e3,
        _STEP_US[0] + cost.tensor_us * one.tensors + slowest_ns * elements / 1e3,
    )
    fused = _fused(cost, one.tensors, elements, threads)
    return fused[0] / loop[1], min(fused[1] / loop[0], 1.0)
