"""What held memory: graphs that losses keep, and everything when memory ran out."""

from __future__ import annotations

import msgspec


class EvaluationGraph(msgspec.Struct, frozen=True):
    """A loop over batches without training, whose results have an autograd graph."""

    file: str
    line: int  # that fetches the batch
    first: int  # where the function begins
    function: str
    name: str  # of a variable that holds a new such result after each batch


class KeptGraphs(msgspec.Struct, frozen=True):
    """Losses of earlier steps that were still held with their graphs when the window closed, or before it opened."""

    losses: int = 0
    steps: int = 0  # steps that these losses are from
    of_steps: int = 0  # steps completed by then
    held_bytes: float | None = None  # by the graphs of one step, nodes excluded; None where torch does not report it
    summed: bool = False  # in a running sum, not in a list
    name: str = ""  # of the variable; empty where it was not found
    function: str = ""
    file: str = ""
    line: int = 0  # that adds to it


class HeldVariable(msgspec.Struct, frozen=True):
    """Bytes of the tensors that a variable of a running function held."""

    name: str
    function: str
    bytes: int


class OutOfMemory(msgspec.Struct, frozen=True):
    """The script ended because an allocation failed: where, in which iteration, and what held memory then.

    file, line, function   the user's line that requested memory; empty and 0 if no user code was running
    device                 cuda | cpu
    tried_bytes            size of the failed request; None if the exception does not state it
    resident_bytes         of the process;  allocated_bytes, reserved_bytes: on its current CUDA device
    weights_bytes, gradients_bytes, state_bytes  of parameters that optimizers update, on that device
    variables              the largest, excluding weights, gradients and optimizer state
    """

    step: int = 0
    device: str = "cpu"
    tried_bytes: int | None = None
    file: str = ""
    line: int = 0
    function: str = ""
    resident_bytes: int | None = None
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    weights_bytes: int | None = None
    gradients_bytes: int | None = None
    state_bytes: int | None = None
    variables: list[HeldVariable] = []
