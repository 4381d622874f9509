"""What held memory: graphs that losses keep, and all of it where memory ran out."""

from __future__ import annotations

import msgspec


class EvaluationGraph(msgspec.Struct, frozen=True):
    """A loop over batches that nothing is trained on, whose results have a graph for a backward pass."""

    file: str
    line: int  # that asks for the batch
    first: int  # where the function begins
    function: str
    name: str  # of a variable that holds another such result after each batch


class KeptGraphs(msgspec.Struct, frozen=True):
    """Losses of earlier steps that were still held with their graphs when the window closed, or before it opened."""

    losses: int = 0
    steps: int = 0  # that they are of
    of_steps: int = 0  # that had been made by then
    held_bytes: float | None = None  # what the graphs of one step hold besides nodes; None where torch does not tell
    summed: bool = False  # in one number that each step adds to, not in a list
    name: str = ""  # of the variable; empty where it was not found
    function: str = ""
    file: str = ""
    line: int = 0


class HeldVariable(msgspec.Struct, frozen=True):
    """Bytes of the tensors that a variable of a running function held."""

    name: str
    function: str
    bytes: int


class OutOfMemory(msgspec.Struct, frozen=True):
    """The script ended because an allocation failed: where, in which iteration, and what held memory then.

    file, line, function   the user's line that asked for memory; empty and 0 where no code of the user's ran
    device                 cuda | cpu
    tried_bytes            that the allocation asked for; None where the exception does not say
    resident_bytes         of the process;  allocated_bytes, reserved_bytes: on its current CUDA device
    weights_bytes, gradients_bytes, state_bytes  that optimizers step and keep, on that device
    variables              the largest, without weights, gradients and state
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
