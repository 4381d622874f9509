"""The host's program: a recorded tree walked on the machine.

The host's own time is what was recorded between rows, less what the profiler added to it there. Ops on the device take
what dispatch and launch take, not what the CPU computed. What a loader's fetch takes is as recorded where it reads in
the training process; workers deliver at their own pace.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from . import collectives
from . import kernels as kernels_of
from .machine import Machine
from .placement import HOST, Choice, is_move
from .recording import FETCH, Row

RENAMED = {
    "aten::mkldnn_convolution": "aten::cudnn_convolution",
    "aten::_slow_conv2d_forward": "aten::cudnn_convolution",
    "aten::mkldnn_linear": "aten::addmm",
    "aten::_scaled_dot_product_flash_attention_for_cpu": "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": (
        "aten::_scaled_dot_product_efficient_attention_backward"
    ),
}
BACKWARD = "autograd::engine::evaluate_function"


@dataclass
class Workers:
    """Batches that worker processes make.

    batch_us  of one worker for one batch;  count: workers;  ahead: batches that are asked for before the first is used
    """

    batch_us: float
    count: int
    ahead: int
    free: list[float] = field(default_factory=list)
    ready: list[float] = field(default_factory=list)
    taken: int = 0

    def fetch(self, now: float) -> float:
        """When the next batch is there. Batches are asked for one by one as others are taken."""
        self.free = self.free or [now] * self.count
        while len(self.ready) <= self.taken + self.ahead - 1:
            worker = len(self.ready) % self.count
            self.free[worker] = max(self.free[worker], now) + self.batch_us
            self.ready.append(self.free[worker])
        there = self.ready[self.taken]
        self.taken += 1
        return max(now, there)


@dataclass
class Ranks:
    """This rank among those of its job: its collectives, and when they ended.

    phase  what all ranks walk at the same time;  done: how many collectives this rank has come to in it
    """

    plan: collectives.Plan
    meetings: collectives.Meetings
    rank: int
    phase: str = ""
    done: int = 0
    ended: dict[int, float] = field(default_factory=dict)

    def before(self, row: Row, machine: Machine) -> None:
        """The stream waits for what the script needs from here on."""
        for call in self.plan.waits.get(id(row), ()):
            if (end := self.ended.pop(id(call.row), None)) is not None:
                machine.wait_for(end)

    def inside(self, row: Row, machine: Machine) -> None:
        """FSDP2 copies shards for a gather on a stream of its own, which the root's forward pass lets start."""
        if row.name.startswith("FSDP::root_pre_forward"):
            machine.ends[collectives.COPY_IN] = max(machine.stream_end, machine.ends.get(collectives.COPY_IN, 0.0))
        if row.name.startswith("FSDP::all_gather ("):
            machine.stream = collectives.COPY_IN

    def collective(self, row: Row, machine: Machine) -> None:
        """The rows that ProcessGroupNCCL writes, and the kernel."""
        call, count = self.plan.calls[id(row)], self.meetings.count
        described = call.args(self.rank, count)
        self.done += 1
        number = self.done
        _, outer = machine.begin(row.name, "cpu_op", _args(row))
        machine.host(0.4 * machine.costs.collective_host_us)
        _, comms = machine.begin("record_param_comms", "cpu_op", described)
        _, mark = machine.begin(f"nccl:{described['Collective name']}", "user_annotation", {})
        machine.host(0.4 * machine.costs.collective_host_us)
        self.ended[id(row)] = machine.collective(
            call.kernel(),
            machine.stream if call.stream == collectives.MAIN else call.stream,
            lambda start: self.meetings.end(self.phase, number, self.rank, start, call),
            described,
        )
        for made in (mark, comms):
            machine.end(made)
        machine.host(0.2 * machine.costs.collective_host_us)
        machine.end(outer)


@dataclass
class Host:
    """Walks rows.

    row_us      what the profiler of the recording added to a row
    tf32        of products and of convolutions
    pinned      batches come in page-locked memory
    workers     None: the training process reads the samples
    """

    machine: Machine
    row_us: float
    tf32: tuple[bool, bool]
    pinned: bool
    workers: Workers | None
    fetch_us: float = 50.0  # what taking a batch from a worker's queue costs the loop
    foreach: set[str] = field(default_factory=set)  # optimizers that take many tensors at once on a device
    choices: dict[int, Choice] = field(default_factory=dict)
    ranks: Ranks | None = None

    def walk(self, row: Row, choice: Choice | None = None) -> None:
        """A row with everything in it."""
        if self.ranks:
            self.ranks.before(row, self.machine)
            if id(row) in self.ranks.plan.calls:
                self.ranks.collective(row, self.machine)
                return
        if row.category == "gap":
            self.machine.host(max(0.0, row.end - row.start))
            return
        if row.is_op and choice is None:
            choice = self.choices.get(id(row), Choice(HOST))
            if choice.implied:  # the script says no `.to(device)`, and would have to
                self.machine.copy("h2d", choice.implied, pinned=False, blocking=True)
        if self.workers and row.name.startswith(FETCH):
            self._fetch(row)
        elif row.is_op and choice is not None and choice.moves:
            self._move(row, choice)
        elif row.is_op and choice is not None and choice.world != HOST and self._on_device(row):
            pass
        elif row.name.startswith("Optimizer.step#") and row.name.split("#")[1].removesuffix(".step") in self.foreach:
            self._foreach_step(row)
        else:
            self._inside(row, choice)

    # ----- rows whose time is the host's

    def _gap(self, us: float, edges: float) -> None:
        """Time of the host between rows, less what the profiler added: half a row's cost at each edge."""
        self.machine.host(max(0.25 * us, us - edges * self.row_us))

    def _inside(self, row: Row, choice: Choice | None) -> None:
        _, made = self.machine.begin(RENAMED.get(row.name, row.name), row.category, _args(row))
        here = self.machine.stream
        if self.ranks:
            self.ranks.inside(row, self.machine)
        self._children(row, row.children, choice)
        self.machine.stream = here
        self.machine.end(made)

    def _children(self, row: Row, children: list[Row], choice: Choice | None) -> None:
        at, backward = row.start, False
        for child in children:
            self._gap(child.start - at, 1.0 if child is not children[0] else 0.5)
            if child.name.startswith(BACKWARD) and not backward:
                self.machine.host(self.machine.costs.backward_wake_us)
            backward = child.name.startswith(BACKWARD)
            thread = self.machine.thread
            if backward and self.choices.get(id(child), Choice()).world != HOST:
                self.machine.thread = "backward"
            self.walk(child, choice)
            self.machine.thread = thread
            at = child.end
        self._gap(row.end - at, 0.5)

    def _fetch(self, row: Row) -> None:
        _, made = self.machine.begin(row.name, row.category, _args(row))
        assert self.workers is not None
        self.machine.now = self.workers.fetch(self.machine.now)
        self.machine.host(self.fetch_us)
        self.machine.end(made)

    # ----- rows whose work is the device's

    def _move(self, row: Row, choice: Choice) -> None:
        """A copy over the bus: `to` holds `_to_copy`, which holds `copy_`."""
        machine = self.machine
        waits = not (is_move(row) and row.values[5:6] == ["True"])
        _, outer = machine.begin(row.name, "cpu_op", _args(row))
        machine.host(0.5)
        _, middle = machine.begin("aten::_to_copy", "cpu_op", _tensor_args(row))
        machine.host(1.0)
        _, empty = machine.begin("aten::empty_strided", "cpu_op", {})
        machine.host(1.0)
        machine.end(empty)
        _, inner = machine.begin("aten::copy_", "cpu_op", _tensor_args(row))
        machine.host(1.5)
        if choice.moves == "h2d":
            machine.copy("h2d", choice.bytes, pinned=self.pinned, blocking=waits)
        else:
            machine.copy("d2h", choice.bytes, pinned=False, blocking=waits)
        for made in (inner, middle, outer):
            machine.end(made)

    def _on_device(self, row: Row) -> bool:
        """Whether the row was of an op that computes; then its work was launched."""
        machine, name = self.machine, kernels_of.short(row.name)
        if name in ("item", "_local_scalar_dense", "is_nonzero", "equal"):
            self._item(row)
            return True
        found = kernels_of.kernels(row, machine.device, self.tf32)
        if found is None or (name == "index" and any(kernels_of.short(one.name) == "nonzero" for one in row.all()[1:])):
            return False
        _, made = machine.begin(RENAMED.get(row.name, row.name), "cpu_op", _args(row))
        machine.host(self._dispatch(row, name))
        if (count := kernels_of.plain_copy(row)) is not None:
            machine.copy_inside(count)
            found = []
        for kernel in found:
            machine.launch(kernel)
        if name in kernels_of.ASKS_SIZE:
            machine.copy("d2h", 8, pinned=True, blocking=True)
        if name in ("mkldnn_convolution", "_slow_conv2d_forward") and len(row.types) > 2 and row.types[2]:
            machine.host(machine.costs.dispatch_us)
            _, added = machine.begin("aten::add_", "cpu_op", {})
            machine.launch(kernels_of.kernels(_bias(row), machine.device, self.tf32)[0])  # type: ignore[index]
            machine.end(added)
        machine.end(made)
        return True

    def _dispatch(self, row: Row, name: str) -> float:
        costs = self.machine.costs
        if "convolution" in name or "conv2d" in name:
            return costs.conv_dispatch_us
        if name.startswith(("_foreach_", "_fused_", "_amp_")):
            lists = [len(dims) for dims, kind in zip(row.dims, row.types, strict=False) if kind == "TensorList"]
            return costs.foreach_us + costs.foreach_tensor_us * sum(lists)
        return costs.dispatch_us

    def _item(self, row: Row) -> None:
        """`item` reads a number of the device: a copy to page-locked memory, and a wait for the stream."""
        machine = self.machine
        outer = None
        if kernels_of.short(row.name) != "_local_scalar_dense":
            _, outer = machine.begin(row.name, "cpu_op", _args(row))
            machine.host(0.5)
        _, inner = machine.begin("aten::_local_scalar_dense", "cpu_op", _tensor_args(row))
        machine.host(1.5)
        machine.copy("d2h", 4, pinned=True, blocking=True)
        machine.end(inner)
        if outer is not None:
            machine.end(outer)

    # ----- optimizers

    def _foreach_step(self, row: Row) -> None:
        """An optimizer that walks its tensors on a CPU takes lists of them on a device, unless it was told not to.

        Of the ops of the walk each kind is one `_foreach_` op over all its tensors. `_foreach` has no Python for each
        tensor but what sorts them by device and dtype.
        """
        ops = [one for one in row.children if one.is_op and any(dims for dims in one.dims if dims)]
        groups: dict[str, list[Row]] = {}
        for op in ops:
            groups.setdefault(op.name, []).append(op)
        machine = self.machine
        _, made = machine.begin(row.name, row.category, _args(row))
        tensors = max((len(one) for one in groups.values()), default=0)
        hooks = row.children[0].start - row.start if row.children else row.end - row.start
        self._gap(min(hooks, 150.0), 0.5)  # the hook around `step`, and what comes before the walk
        machine.host(10.0 + 0.8 * tensors)  # sorting tensors by device and dtype: an estimate
        for name, group in groups.items():
            count = len(group)
            tensors_of = [i for i, kind in enumerate(group[0].types) if kind in kernels_of.SIZES]
            alike = [i for i in tensors_of if all(len(one.dims) > i for one in group)]
            dims = [[one.dims[i] for one in group] for i in alike]
            label = "aten::_foreach_" + re.sub(r"^aten::_?", "", name)
            args = {"Input Dims": dims, "Input type": ["TensorList"] * len(dims)}
            whole = Row(label, "cpu_op", 0.0, 0.0, args)
            _, op_row = machine.begin(label, "cpu_op", args)
            machine.host(machine.costs.foreach_us + machine.costs.foreach_tensor_us * count * len(dims))
            for kernel in kernels_of.multi_tensor(whole, machine.device):
                machine.launch(kernel)
            machine.end(op_row)
            machine.host(3.0)
        machine.end(made)


def _bias(row: Row) -> Row:
    """The addition of a convolution's bias."""
    dims = row.dims[0]
    out = [dims[0], row.dims[1][0], *dims[2:]]
    return Row("aten::add_", "cpu_op", 0, 0, {"Input Dims": [out], "Input type": [row.types[0]]})


def _args(row: Row) -> dict[str, Any]:
    """What the row says, without the numbers that the trace gives anew."""
    return {key: value for key, value in row.args.items() if key not in ("External id", "Ev Idx")}


def _tensor_args(row: Row) -> dict[str, Any]:
    return {"Input Dims": row.dims[:1], "Input type": row.types[:1], "Concrete Inputs": [""]}
