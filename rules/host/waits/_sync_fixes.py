"""What can be done about a wait for the GPU, by the op that waits."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from advisor.api import (
    AUTOGRAD_NODE,
    D2H_PAGEABLE,
    NCCL,
    SYNC,
    Category,
    Ev,
    Example,
    Fix,
    Price,
    SyncSite,
    Treatment,
    draw,
    starts_in,
)

from ...shared._gathered_objects import GATHER_TENSORS, gathers_objects
from ...shared._made_on_host import CREATE_THERE, CREATED, made_on_host
from ...shared._round_trips import round_trip
from ._hooks import HOOKED, SELDOM, of_hooks
from ._waits import COPIES, FEW_READS, READS, reads_one_by_one, sends_indices
from ._work_on_results import RESULTS, works_on_results

_PINNED = Fix(
    "Copy asynchronously from pinned memory",
    "exact",
    "DataLoader(dataset, ...)\nx = x.to(device)",
    "DataLoader(dataset, ..., pin_memory=True)\nx = x.to(device, non_blocking=True)",
)
# A batch's pictures are larger; of few bytes are its labels, and what the script itself holds on the host.
_SMALL_BYTES = 64 << 10
_ONCE = Fix(
    "Move tensors that stay the same to the GPU before the loop, others from pinned memory",
    "exact",
    "x = (x - mean.to(device)) / std.to(device)",
    "mean, std = mean.to(device), std.to(device)  # once, before the loop\n...\nx = (x - mean) / std",
)
# What a server, a decoder or a replay's priorities need on the host they need each time: it can only be waited for
# while the next work runs.
_LATER = Fix(
    "Copy results asynchronously, and read them when the next iteration is launched",
    "semantics",
    "out = model(x)\nhandle(out.cpu())",
    "out = model(x)\nkept.copy_(out, non_blocking=True)  # kept: pinned memory, two of them, alternately\n"
    "copied.record()  # copied: a torch.cuda.Event for each\n"
    "next_out = model(next_x)  # in a training with its backward pass, before anything waits\n"
    "copied.synchronize()\nhandle(kept)  # one iteration late, and so is what it decides: the next batch, or the "
    "end of a sequence",
)
_SELDOM = Fix(
    "Copy to the host less often, or asynchronously",
    "exact",
    "history.append(out.cpu())",
    "history.append(out.detach())  # and move the list to the host after the epoch",
)
# Gradients of what `torch.where` does not choose are zero times its derivative: NaN where that is infinite, or NaN.
_NO_NAN = "\n# where targets may be NaN, first: target = target.nan_to_num(0), as gradients would be NaN"
# Not x = torch.where(mask, x, 0): that has another shape, and another mean.
_MASKED = Fix(
    "Reduce with the mask instead of selecting by it",
    "numerics",
    "loss = losses[mask].mean()",
    "loss = torch.where(mask, losses, 0).sum() / mask.sum()  # the same mean, of a shape that is known" + _NO_NAN,
)
# aten/src/ATen/native/IndexingUtils.h, expandTensors: a mask becomes indices by `nonzero`, which the host waits for.
_WRITTEN = Fix(
    "Choose by the mask with `torch.where` instead of writing to where it is true",
    "exact",
    "out[mask] = change(x[mask])",
    "out = torch.where(mask[:, None], change(x), out)  # computes all of x, and waits for nothing",
)
_CHOSEN = Fix(
    "Compute all rows, and choose with `torch.where` instead of selecting by a mask",
    "exact",
    "chosen = x[mask]\nx[mask] = change(chosen)",
    "x = torch.where(mask[:, None], change(x), x)  # of a shape that is known\n"
    "# texts of a batch, whose lengths the host knows before it sends them: x[at, : lengths[at]]" + _NO_NAN,
)
# torch.randperm has `device`; what NumPy draws or sorts is sent for each selection, and waited for.
_INDICES = Fix(
    "Draw indices on the GPU instead of sending them for each selection",
    "exact",
    "order = np.random.permutation(n)\nfor part in np.split(order, parts):\n    x[part]",
    'order = torch.randperm(n, device="cuda")  # other numbers than NumPy draws\n'
    "for part in order.chunk(parts):\n    x[part]",
)
_REPEATED = Fix(
    "Pass `output_size`, which the op otherwise waits for",
    "exact",
    "y = x.repeat_interleave(counts, dim=0)",
    "y = x.repeat_interleave(counts, dim=0, output_size=total)  # total: known on the host",
)
_KEPT = Fix(
    "Accumulate on the device and read the value every N steps",
    "exact",
    "running += loss.item()",
    "running += loss.detach()\nif step % 100 == 0:\n    print(running.item())",
    edit=Treatment("kept_on_device"),
)
# `if tensor:` decides what the host does next, and a loop that reads an element in each iteration goes on by it.
_CONDITIONS = Fix(
    "Compute the conditions of the whole batch by tensor ops, and read them together, once",
    "exact",
    "for boxes in batch:\n    while not boxes[last].any():\n        last -= 1",
    "valid = batch.abs().sum(dim=-1) > 0  # of all samples\n"
    "loss = torch.where(valid, losses, 0).sum()  # where numbers are enough, nothing is read\n"
    "counts = valid.sum(dim=1).tolist()  # where the host needs them: one wait a step",
)
_AT_ONCE = Fix(
    "Read the values of a step together, by one `.tolist()` outside of the loop",
    "exact",
    "for at, length in enumerate(lengths):\n    parts.append(x[at].expand(length.item(), -1))",
    "for at, length in enumerate(lengths.tolist()):  # one wait\n    parts.append(x[at].expand(length, -1))\n"
    "# values that the loop computes, behind it: torch.stack(values).tolist(); those of a log, only in some steps",
)

_WITHOUT = Fix(
    "Remove the synchronization",
    "exact",
    "torch.cuda.synchronize()",
    "",
    Treatment("calls", {"names": ["torch.cuda.synchronize"]}),
)
_WITHOUT_BARRIERS = Fix(
    "Exchange values every hundred steps or once an epoch, together, and without a barrier for each",
    "exact",
    "self.log('accuracy', accuracy, on_step=True, sync_dist=True)  # Lightning: a barrier and a sum for each value",
    "self.log('accuracy', accuracy, on_step=False, on_epoch=True, sync_dist=True)  # once an epoch\n"
    "# without Lightning: totals += values, and every 100 steps one dist.all_reduce(totals), without dist.barrier()",
)
# docs.pytorch.org/docs/stable/distributed.html: a barrier blocks until all processes enter it; so do collectives.
_NO_BARRIER = Fix(
    "Remove the barrier: the collectives of each step wait for all ranks by themselves",
    "exact",
    "for batch in loader:\n    dist.barrier()\n    train_step(batch)",
    "for batch in loader:\n    train_step(batch)  # a barrier belongs where one rank writes a file and others read it",
)

# Levels of a network need each other's result, and a network has a handful; tables do not, and there are dozens.
_LEVELS = 6
_TOGETHER = Fix(
    "Call `unique` once for all of these tensors",
    "exact",
    "for ids in tables:\n    keys, where = torch.unique(ids, return_inverse=True)",
    "ids = torch.cat([ids + number * rows for number, ids in enumerate(tables)])  # rows: more than any table has\n"
    "keys, where = torch.unique(ids, return_inverse=True)",
)

_BY_OP = {
    **dict.fromkeys(("aten::nonzero", "aten::masked_select", "aten::index"), _MASKED),
    "aten::index_put_": _WRITTEN,
    "aten::repeat_interleave": _REPEATED,
}
_BARRIER = "c10d::barrier"
# Ops that make a tensor of a value and send it, or compute a loss of what was selected.
_SOON = 6
_REDUCTIONS = (
    "aten::mean",
    "aten::sum",
    "aten::max",
    "aten::min",
    "aten::amax",
    "aten::amin",
    "loss",
    "norm",
    "aten::dot",
)
# How many there are is what they are asked for.
_COUNTING = ("aten::unique", "aten::_unique2", "aten::unique_dim")
# Compiled code is many ops: which of them waits its row does not say.
_COMPILED = ("Torch-Compiled Region", "CompiledFunction")
# Where reads of several kinds are one, the change for one of them spares this part of the waits, or it is none.
_MOSTLY = 0.75
# A loop in the step has so many iterations, each of which waits so long.
_TURNS, _WAITED_NS = 4, 100_000


def fix_of(site: SyncSite, price: Price, *, trains: bool) -> Fix | None:
    """The change for one place that waits; None where none is known."""
    if "Synchronize" in site.op:
        return _of_barriers(site, price) or _WITHOUT
    if len(of_hooks(site, price)):
        return SELDOM
    if site.op in _COUNTING:
        return _TOGETHER if site.calls > _LEVELS else None
    if site.op in _BY_OP:
        # By itself, and not within an index: what is found once serves all who ask.
        fewer = _fewer(site) if site.op == "aten::nonzero" else None
        mine = price.ops.events.exactly(site.op)[np.array(site.rows, int)].mean()
        if fewer is None and site.calls > FEW_READS and mine < _MOSTLY:
            return _CONDITIONS
        return fewer or (_CHOSEN if _BY_OP[site.op] is _MASKED and not _reduced(site, price) else _BY_OP[site.op])
    return _of_values(site, price, trains=trains)


def _of_values(site: SyncSite, price: Price, *, trains: bool) -> Fix | None:
    """The change for values and tensors that the host reads, and for ops that need a value themselves."""
    if trains and site.op in (*READS, *COPIES) and works_on_results(site, price):
        return _LATER
    if site.op in COPIES:
        return _to_host(site, price, trains=trains)
    if reads_one_by_one(site):
        return _CONDITIONS if site.op == "aten::is_nonzero" else _AT_ONCE
    return _fewer(site) if of_the_op(site, price) else _KEPT


def _reduced(site: SyncSite, price: Price) -> bool:
    """Whether most of what these select is reduced to numbers by one of the next ops, as a loss is."""
    events, outer = price.ops.events, price.ops.outermost
    rows = np.array(site.rows, int)
    at = np.searchsorted(events.start_ns[outer], events.start_ns[rows], side="right")
    reach = np.append(0, np.cumsum(events.named(*_REDUCTIONS)[outer]))
    return bool(2 * int((reach[np.minimum(at + _SOON, len(outer))] > reach[at]).sum()) > len(rows))


def _of_barriers(site: SyncSite, price: Price) -> Fix | None:
    """The change where most of these waits follow a barrier directly, which waits for its all-reduce of one number."""
    events = price.ops.events
    rows = np.array(site.rows, int)
    calls = np.flatnonzero(events.of(Category.CPU_OP) & price.ops.nesting.outermost)
    calls = calls[np.isin(events.thread[calls], events.thread[rows])]
    at = np.searchsorted(events.start_ns[calls], events.start_ns[rows])
    if 2 * int(events.named(_BARRIER)[calls[at[at > 0] - 1]].sum()) <= len(rows):
        return None
    sends = (events.named("c10d::") & ~events.named(_BARRIER))[calls]
    reach = np.append(0, np.cumsum(sends))
    # What ranks exchange within the next ops is what the barrier was for.
    soon = reach[np.minimum(at + _SOON, len(calls))] > reach[at]
    return _WITHOUT_BARRIERS if 2 * int(soon.sum()) > len(rows) else _NO_BARRIER


def _to_host(site: SyncSite, price: Price, *, trains: bool) -> Fix:
    """The change for copies of whole tensors to the host."""
    if gathers_objects(price, np.array(site.rows, int)):
        return GATHER_TENSORS
    if trip := round_trip(price):
        return trip
    return _SELDOM if trains and not _in_turn(site, price) else _LATER


def _fewer(site: SyncSite) -> Fix | None:
    """The change for an op that needs the value itself."""
    name = site.op.removeprefix("aten::")
    if site.calls < 2 or name.startswith(_COMPILED):
        return None
    return Fix(f"Call `{name}` fewer times: for the whole batch, or once where several layers use its result", "exact")


def to_device(site: SyncSite, price: Price) -> Fix | None:
    """The change where what waits are copies to the device: from memory that is not pinned they queue behind its work.

    What the host creates without data can be created on the device, and then nothing is copied. Of few bytes the
    driver keeps a copy, and nothing but PyTorch's wait for the stream is left to spare.
    """
    events, launch = price.ops.events, price.ops.links.launch
    copies = np.flatnonzero(events.of(Category.MEMCPY) & (launch >= 0))
    rows = np.array(site.rows, int)
    inside = events.covered(rows)
    mine = copies[starts_in(events.start_ns[launch[copies]], inside)]
    if sends_indices(site, price):
        return _INDICES
    if not len(mine) or not events.named("HtoD")[mine].all():
        return None
    outer = price.ops.nesting.outer_op[rows]
    if made_on_host(price, np.unique(np.where(outer >= 0, outer, rows)).tolist()).created:
        return CREATE_THERE
    sizes = events.bytes[mine]
    return _ONCE if ((sizes >= 0) & (sizes <= _SMALL_BYTES)).all() else _PINNED


def of_the_op(site: SyncSite, price: Price) -> bool:
    """Whether an op waits for a value that it needs itself, such as the size of its result."""
    is_op = price.ops.events.category[site.rows[0]] == Category.CPU_OP
    return bool(is_op) and site.op not in (*READS, *COPIES, *_BY_OP, *_COUNTING)


def _in_turn(site: SyncSite, price: Price) -> bool:
    """Whether a loop in the step reads these, as a decoder does: each read waits for work, none of it of autograd."""
    events, steps = price.ops.events, price.ops.steps
    rows = np.array(site.rows, int)
    if site.calls < _TURNS or np.median(events.dur_ns[rows]) < _WAITED_NS:
        return False
    nodes = events.start_ns[events.named(AUTOGRAD_NODE)]
    before = np.searchsorted(np.sort(nodes), events.start_ns[rows])
    same = np.diff(steps.step_of(events.start_ns[rows])) == 0
    return bool(2 * ((np.diff(before) == 0) & same).sum() > same.sum())


_LOOP = """
    step   [1                                                 ] [2                                                 ]
    cpu    [F][I  ]   [F][I  ]   [F][I  ]   [F][I  ]   [B ]    [F][I  ]   [F][I  ]   [F][I  ]   [F][I  ]   [B ]
    gpu 7   [K ]       [K ]       [K ]       [K ]       [K ]    [K ]       [K ]       [K ]       [K ]       [K ]
    gpu 7       [C]        [C]        [C]        [C]                [C]        [C]        [C]        [C]
    """


def _turned(name: str, waiting: Ev, fixes: tuple[str, ...]) -> Example:
    forward, back = Ev("aten::linear"), Ev(f"{AUTOGRAD_NODE}: AddmmBackward0")
    drawn = draw(_LOOP, us=1000, F=forward, I=waiting, B=back, C=D2H_PAGEABLE)
    return Example(name, drawn, saves_us=(0, 20_000), says=("4 times a step",), fixes=fixes)


# Seven reads in a step, as those of `_LOOP`.
_READS = f"""
    step   {("[1" + 82 * " " + "]") * 2}
    cpu    {(7 * "[F][I  ]   " + "[B ]    ") * 2}
    gpu 7  {(7 * " [K ]      " + " [K ]   ") * 2}
    gpu 7  {(7 * "     [C]   " + "        ") * 2}
    """


def _read(name: str, op: str, fix: str) -> Example:
    waiting = Ev(op, launches="memcpy", blocks=True)
    drawn = draw(_READS, us=1000, F=Ev("aten::linear"), I=waiting, B=Ev("aten::mm"), C=D2H_PAGEABLE)
    return Example(name, drawn, saves_us=(0, 50_000), says=("7 times a step",), fixes=(fix,))


SITES = [
    *RESULTS,
    Example(
        "a barrier before each value that ranks exchange: what waits is its own",
        draw(
            """
            step   [1                        ][2                        ]
            cpu    [F ][A ][S    ]   [R][B  ] [F ][A ][S    ]   [R][B  ]
            gpu 7   [K      ]           [K  ]  [K      ]           [K  ]
            gpu 20          [N ]     [N ]               [N ]     [N ]
            """,
            us=1000,
            world_size=2,
            A=Ev("c10d::barrier", launches="collective"),
            R=Ev("c10d::allreduce_", launches="collective"),
            N=NCCL,
            S=SYNC,
        ),
        saves_us=(0, 9000),
        fixes=("without a barrier for each",),
    ),
    Example(
        "a barrier before each step, and nothing that ranks exchange",
        draw(
            """
            step   [1                        ][2                        ]
            cpu    [F ][A ][S    ]   [B     ] [F ][A ][S    ]   [B     ]
            gpu 7   [K      ]         [K     ] [K      ]         [K     ]
            gpu 20          [N ]                        [N ]
            """,
            us=1000,
            world_size=2,
            A=Ev("c10d::barrier", launches="collective"),
            N=NCCL,
            S=SYNC,
        ),
        saves_us=(0, 12_000),
        fixes=("Remove the barrier",),
    ),
    *HOOKED,
    replace(CREATED, saves_us=(0, 20_000), says=("`to` makes the host wait",)),
    _read("values that a loop reads one by one", "aten::item", "lengths.tolist()"),
    _read("conditions that a loop asks for one by one", "aten::is_nonzero", "conditions of the whole batch"),
    _turned(
        "four values in a step: not yet a loop over elements",
        Ev("aten::item", launches="memcpy", blocks=True),
        ("running += loss.detach()",),
    ),
    _turned(
        "tokens that a loop in a training step reads, one after the other: the next one can be launched first",
        Ev("aten::to", launches="memcpy", blocks=True),
        ("next_out = model(next_x)",),
    ),
    _turned(
        "an op of a library that waits for the size of its result: no value that could be read later",
        Ev("SubMConvFunction", "cpu_op", launches="memcpy", blocks=True),
        ("Call `SubMConvFunction` fewer times",),
    ),
]
