"""Which ops of a step would have run on the device, and where tensors cross the bus.

A recorded CPU run does not say it: `x.to("cpu")` of a CPU tensor does nothing, and is a row all the same. Tensors are
followed through the execution trace: what a loader gives lies on the host, what an optimizer steps on the device; an op
needs all that it reads in one place, so tensors that meet in an op lie together. A row of `x.to(device)` begins a new
life of its tensor, on the device; where the script's line says `.cpu()`, on the host.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import Any

from .recording import FETCH, Recording, Row, outermost

HOST, DEVICE = "host", "device"
# `Tensor.to(device)` has all options of a tensor's place among its arguments; `Tensor.to(dtype)` has not.
TO_ARGUMENTS = 8


@dataclass
class Choice:
    """Where an outermost op runs.

    moves, bytes  of `to(device)`, `cpu()` and `tolist()`: h2d | d2h, and how much
    implied       bytes of a batch that have to be moved first, because the script says no `.to(device)`
    """

    world: str = DEVICE
    moves: str = ""
    bytes: int = 0
    implied: int = 0


@dataclass
class _Seen:
    """One outermost op of the execution trace."""

    name: str
    reads: list[tuple[int, int, int]] = field(default_factory=list)  # storage, elements, bytes of an element
    writes: list[tuple[int, int, int]] = field(default_factory=list)
    scalars: set[int] = field(default_factory=set)  # storages of tensors without dimensions
    is_to: bool = False
    fetch: bool = False
    optimizer: bool = False
    step: str = ""  # the annotation of the observed step that holds it


def of_steps(recording: Recording, steps: list[Row]) -> list[list[Choice]]:
    """For each step a choice for each of its outermost ops."""
    seen = _observed(recording.nodes)
    texts = _texts_for(seen, recording)
    fused = any(one.get("fused") or one.get("capturable") for one in recording.rank.get("optimizers") or [])
    choices = _choose(seen, texts, counts_on_device=fused) if seen else []
    last = _last_step(seen)
    found = []
    for step in steps:
        ops = outermost(step)
        names = [op.name for op in ops]
        pairs = aligned(names, [one.name for one in seen[last]]) if seen else {}
        base = last.start
        found.append([choices[base + pairs[i]] if i in pairs else _guess(op) for i, op in enumerate(ops)])
        if not seen:
            found[-1] = _without_dataflow(step, ops)
    return found


def aligned(wanted: list[str], known: list[str]) -> dict[int, int]:
    """Index in `wanted` -> index in `known`, of names in the same order."""
    if wanted == known:
        return {i: i for i in range(len(wanted))}
    matcher = difflib.SequenceMatcher(None, wanted, known, autojunk=False)
    return {a + i: b + i for a, b, size in matcher.get_matching_blocks() for i in range(size)}


def _guess(op: Row) -> Choice:
    """An op that the observed step does not have, such as the logging of every tenth: on the device."""
    return Choice(DEVICE)


def _without_dataflow(step: Row, ops: list[Row]) -> list[Choice]:
    """Fetches on the host, all else on the device; the first moves after a fetch are those of the batch."""
    inside = {id(below) for child in step.children if child.name.startswith(FETCH) for below in child.all()}
    choices, computed = [], False
    for op in ops:
        if id(op) in inside:
            choices.append(Choice(HOST))
            computed = False
        elif is_move(op) and not computed and inside:
            choices.append(Choice(DEVICE, "h2d", _bytes_of(op)))
        else:
            computed = computed or any(child.name in ("aten::addmm", "aten::mm") for child in op.all())
            choices.append(Choice(DEVICE))
    return choices


def is_move(op: Row) -> bool:
    """Whether the row is of `Tensor.to(device)` or `Tensor.cpu()`."""
    return op.name == "aten::to" and len(op.dims) == TO_ARGUMENTS


def _bytes_of(op: Row) -> int:
    count = 1
    for size in op.dims[0] if op.dims else []:
        count *= size
    return count * SIZES.get(op.types[0] if op.types else "", 4)


SIZES = {
    "float": 4,
    "double": 8,
    "long int": 8,
    "int": 4,
    "short int": 2,
    "signed char": 1,
    "unsigned char": 1,
    "bool": 1,
    "c10::Half": 2,
    "c10::BFloat16": 2,
    "c10::complex<float>": 8,
    "c10::complex<double>": 16,
}


# ----- the execution trace


def _tensors(values: list[Any], shapes: list[Any], scalars: set[int]) -> list[tuple[int, int, int]]:
    """(storage, elements, bytes of an element) of each tensor in these values, those in lists as well."""
    found = []
    for value, shape in zip(values, shapes, strict=False):
        if isinstance(value, list) and len(value) == 6 and isinstance(value[5], str) and ":" not in str(value[0]):
            if value[1]:
                found.append((value[1], value[3], value[4]))
                if shape == []:
                    scalars.add(value[1])
        elif isinstance(value, list) and value and isinstance(value[0], list):
            found += _tensors(value, shape if isinstance(shape, list) else [], scalars)
    return found


def _observed(nodes: list[dict[str, Any]]) -> list[_Seen]:
    """Outermost ops in the order in which they began."""
    by_id = {node["id"]: node for node in nodes}
    annotation = {i for i, node in by_id.items() if _is_annotation(node)}
    top_of: dict[int, int] = {}
    for i in sorted(by_id):
        node = by_id[i]
        parent = node["ctrl_deps"]
        if i in annotation or parent == i:
            continue
        top_of[i] = top_of.get(parent, i) if parent not in annotation and parent in by_id else i
    found: dict[int, _Seen] = {}
    for i in sorted(top_of):
        top, node = top_of[i], by_id[i]
        if top not in found:
            above = _names_above(by_id, top)
            found[top] = _Seen(
                by_id[top]["name"],
                fetch=any(name.startswith(FETCH) for name in above),
                optimizer=any(name.startswith("Optimizer.step") for name in above),
                step=next((name for name in above if name.startswith("advisor:observed#")), ""),
            )
            one = found[top]
            one.is_to = one.name == "aten::to" and len(node["inputs"]["values"]) == TO_ARGUMENTS
        one = found[top]
        one.reads += _tensors(node["inputs"]["values"], node["inputs"]["shapes"], one.scalars)
        one.writes += _tensors(node["outputs"]["values"], node["outputs"]["shapes"], one.scalars)
    return [found[i] for i in sorted(found)]


def _is_annotation(node: dict[str, Any]) -> bool:
    scope = next((one["value"] for one in node["attrs"] if one["name"] == "scope"), 0)
    return bool(scope == 7)


def _names_above(by_id: dict[int, Any], i: int) -> list[str]:
    names = []
    while (parent := by_id[i]["ctrl_deps"]) in by_id and parent != i:
        names.append(by_id[parent]["name"])
        i = parent
    return names


def _last_step(seen: list[_Seen]) -> slice:
    """The last of the observed steps."""
    if not seen:
        return slice(0, 0)
    first = next(i for i, one in enumerate(seen) if one.step == seen[-1].step)
    return slice(first, len(seen))


def _texts_for(seen: list[_Seen], recording: Recording) -> dict[int, str]:
    """The script's line of each observed op of the last step."""
    names = [op.name for step in recording.lines if step.number is not None for op in outermost(step.row)]
    last = _last_step(seen)
    pairs = aligned([one.name for one in seen[last]], names)
    return {last.start + i: recording.texts[j] for i, j in pairs.items()}


class _Places:
    """Lives of tensors, joined where they have to lie together."""

    def __init__(self) -> None:
        self.parent: list[int] = []
        self.seeds: list[set[str]] = []
        self.now: dict[int, int] = {}

    def new(self, seed: str = "") -> int:
        """A life of its own."""
        self.parent.append(len(self.parent))
        self.seeds.append({seed} if seed else set())
        return len(self.parent) - 1

    def of(self, storage: int) -> int:
        """The life that a storage has now."""
        if storage not in self.now:
            self.now[storage] = self.new()
        return self.find(self.now[storage])

    def find(self, life: int) -> int:
        """The one that stands for all lives joined to it."""
        while self.parent[life] != life:
            life = self.parent[life]
        return life

    def join(self, one: int, other: int) -> None:
        """They lie together."""
        one, other = self.find(one), self.find(other)
        if one != other:
            self.parent[other] = one
            self.seeds[one] |= self.seeds[other]


def _choose(seen: list[_Seen], texts: dict[int, str], *, counts_on_device: bool) -> list[Choice]:
    """A choice for each observed op. Optimizers count steps on the host, unless they are fused or capturable."""
    places = _Places()
    lives: list[tuple[int | None, int | None]] = []  # before and after a move; of all others what they read and write
    born: dict[int, str] = {}
    implied: dict[int, int] = {}  # op -> bytes of a batch that it reads and nothing moved
    for i, one in enumerate(seen):
        storages = list(dict.fromkeys(s for s, _, _ in one.reads + one.writes))
        if one.optimizer and not counts_on_device and all(s in one.scalars for s in storages):
            lives.append((None, None))
            continue
        if one.is_to and not one.fetch and one.reads:
            lives.append(_move(places, one, texts.get(i, "")))
            born.pop(one.reads[0][0], None)
            continue
        # `set_` writes no memory: it shows a tensor memory that is there.
        made = {s for s, _, _ in one.writes} - {s for s, _, _ in one.reads} if one.name != "aten::set_" else set()
        for storage in made:
            places.now[storage] = places.new()
        # A scalar may lie on the host beside tensors of the device; alone it says where the op runs.
        wide = [s for s in storages if s not in one.scalars] or storages
        for other in wide[1:]:
            places.join(places.of(wide[0]), places.of(other))
        for scalar in made - set(wide):
            places.join(places.of(wide[0]), places.of(scalar)) if wide else None
        life = places.of(wide[0]) if wide else None
        if life is not None:
            if one.fetch:
                places.seeds[life].add(HOST)
                born.update(dict.fromkeys(made, HOST))
            elif one.optimizer or one.name.endswith("AccumulateGrad"):
                places.seeds[life].add(DEVICE)
            elif not one.reads:
                places.seeds[life].add("made")
            if not one.fetch:
                implied[i] = sum(n * size for s, n, size in one.reads if born.pop(s, "") == HOST)
        lives.append((life, None))
    return [
        _choice(places, one, life, implied.get(i, 0)) for i, (one, life) in enumerate(zip(seen, lives, strict=True))
    ]


def _move(places: _Places, one: _Seen, text: str) -> tuple[int, int]:
    """A row of `to(device)` or `cpu()`: the lives before and after it."""
    storage = one.reads[0][0]
    before = places.of(storage)
    says_host = any(word in text for word in (".cpu(", '"cpu"', "'cpu'", ".numpy(", ".tolist("))
    says_device = any(word in text for word in (".to(", ".cuda("))
    if says_host and not says_device:
        places.seeds[before].add("left")
        after = places.new(HOST)
    else:
        places.seeds[before].add("moved")
        after = places.new(DEVICE)
    for out, _, _ in one.writes or one.reads[:1]:
        places.now[out] = after
    places.now[storage] = after
    return before, after


def _world(seeds: set[str]) -> str:
    """Where lives of these seeds lie: what an optimizer steps decides, then the loader, then moves."""
    if DEVICE in seeds:
        return DEVICE
    if HOST in seeds or "moved" in seeds:
        return HOST
    if "made" in seeds and "left" not in seeds:
        return HOST  # made in the loop and met by nothing of the device
    return DEVICE


def _choice(places: _Places, one: _Seen, life: tuple[int | None, int | None], implied: int) -> Choice:
    before, after = life
    if before is None:
        return Choice(HOST)
    world = _world(places.seeds[places.find(before)])
    if after is not None:
        then = _world(places.seeds[places.find(after)] & {HOST, DEVICE})
        size = one.reads[0][1] * one.reads[0][2]
        if world == then:
            return Choice(world)
        return Choice(DEVICE, "h2d" if then == DEVICE else "d2h", size)
    if one.fetch:
        return Choice(HOST)
    if one.name == "aten::resolve_neg" and world == DEVICE:  # `tolist` of a tensor of the device
        return Choice(DEVICE, "d2h", one.reads[0][1] * one.reads[0][2] if one.reads else 4)
    return Choice(world, implied=implied if world == DEVICE else 0)
