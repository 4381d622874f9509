"""Which ops of a step compute from a batch what is the same for its samples whenever they come: frozen features.

Pure, like `value_numbering`. Such an op reads samples as the loader gave them or as the script chose them out of a
tensor that stays (`images[rows]`), or what others of its kind made of them, with tensors that nothing writes, and works
on each sample by itself (`sample_dims`). Whether the loader gives the same sample again, and whether a sample comes
again at all, is told elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct, field

from advisor.analyses.dataflow.observed import value_numbering
from advisor.analyses.dataflow.observed.value_numbering import Op, Ref
from advisor.analyses.dataflow.values.sample_dims import Lies, through

# Bytes of a number, by what its type ends with in the observer's words.
_BYTES = {"double)": 8, "long int)": 8, "float)": 4, "(int)": 4, "Half)": 2, "BFloat16)": 2, "short int)": 2}
# Weights that make features, not a scale or a mean by which inputs are normalised.
_LAYERS = re.compile(r"^aten::(_?conv|linear$|matmul$|mm$|bmm$|embedding$|_transformer_encoder)")
# Rows of a tensor at indices; which dimension these are of, the sizes tell.
_CHOOSES = ("aten::index", "aten::index_select")
# What Python reads: what it does next with a number that was drawn no op tells.
_READ_OUT = ("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero")


class FrozenFeatures(Struct, frozen=True):
    """ops: by their place in the step; samples: in a batch.

    kept_bytes   of what the other ops read of their results, for one sample;  read_bytes: of what only they read of it
    layers       how many of the ops are layers;  weights: storages of the tensors that the ops read with the samples
    chosen_of    samples in the tensor that the batch was chosen of, which is among `weights`; 0: a loader gave it
    """

    ops: list[int]
    samples: int
    kept_bytes: int
    read_bytes: int
    layers: int
    weights: list[int]
    chosen_of: int = 0


class _Chosen(NamedTuple):
    """Samples of a tensor that stays: at which indices (a tensor and its storage), and of how many."""

    indices: tuple[int, int]
    of: int


class _Value(Struct, eq=False):
    """What a storage held from one writing to the next.

    size     samples in the batch that it came of; 0 where it is the same in each step
    at       the op that made it, -1 for what the loader gave;  readers: ops that read it
    bytes    the most that an op read of it
    weights  storages that the script holds and that it came of
    chosen   by what its samples were chosen; None: a loader gave them
    """

    storage: int
    size: int
    at: int = -1
    weights: frozenset[int] = frozenset()
    chosen: _Chosen | None = None
    bytes: int = 0
    readers: list[int] = field(default_factory=list)


class _Look(NamedTuple):
    """What a tensor looks at. lies: None where it is the same in each step."""

    value: _Value
    lies: Lies | None
    weights: frozenset[int]


class _Work(Struct, frozen=True, eq=False):
    """An op of the last step that works on each sample by itself, and is not only another look at what it reads."""

    at: int
    reads: list[_Value]
    makes: list[_Value]
    layer: bool
    weights: frozenset[int]


class _Flow:
    """Follows samples through the ops of all steps."""

    def __init__(self, known: set[tuple[int, int]], still: set[int]) -> None:
        self.known, self.still = known, still
        self.looks: dict[int, _Look] = {}  # by tensor
        self.now: dict[int, _Value] = {}  # storage -> what it holds
        self.drawn: set[int] = set()  # storages of random numbers alone
        self.unread: set[int] = set()  # of them those that no op has read yet
        self.branches = False  # Python read a number that was drawn
        self.told = False  # Python read a number of this step, and later ones may have been made of it
        self.work: dict[int, _Work] = {}

    def begin(self) -> None:
        """A step begins: of what came before only batches that were fetched ahead are followed."""
        self.work.clear()
        self.told = False
        self.looks = {tensor: one for tensor, one in self.looks.items() if one.value.at < 0}

    def read(self, ref: Ref) -> _Look | None:
        """What a tensor holds; None where that is not known to be samples, or the same in each step."""
        if (ref.tensor, ref.storage) in self.known:
            return _Look(_Value(ref.storage, 0), None, frozenset([ref.storage])) if ref.storage in self.still else None
        look = self.looks.get(ref.tensor)
        if look is not None and look.value.storage == ref.storage and self.now.get(ref.storage) is look.value:
            return look
        plain = ref.number and not self.told
        return _Look(_Value(ref.storage, 0), None, frozenset()) if plain else None

    def take(self, op: Op, at: int, same: bool) -> None:
        """One op. at: its place; same: every step runs it in the same form."""
        refs = op.refs
        self._draws(op, refs)
        if op.place == "fetch":
            self._fetched(op, refs)
            return
        self.told |= op.name in _READ_OUT
        read = [self.read(ref) for ref in refs]
        if op.place == "loop" and self._choose(op, read):
            return
        found = _followed(op, read) if same else None
        work = self._made(op, at, read, found)
        if found is not None and any(found) and not work.makes:
            return  # who reads the look reads the value
        if work.makes and found is not None and any(found):
            self.work[at] = work
        # A backward pass reads what its forward pass kept; without that op it would have kept less.
        for ref, one in zip(refs, read, strict=True) if op.place != "backward" else ():
            if one is not None:
                one.value.readers.append(at)
                one.value.bytes = max(one.value.bytes, _bytes(ref))

    def _made(self, op: Op, at: int, read: Sequence[_Look | None], found: list[Lies | None] | None) -> _Work:
        """Takes note of what an op writes and makes. found: where samples lie in each result, if that is known."""
        touched = {ref.storage for ref in op.refs}
        written = {ref.storage for ref in value_numbering.written(op)}
        sources = [one.value for one in read if one is not None and one.value.size]
        weights = frozenset().union(*(one.weights for one in read if one is not None and not one.lies))
        size = max((one.size for one in sources), default=0)
        chosen = next((one.chosen for one in sources), None)
        fresh = dict.fromkeys(ref.storage for ref in op.outputs if ref.storage not in touched - written)
        makes = {storage: _Value(storage, size, at, weights, chosen) for storage in [*fresh, *written]}
        self.now.update(makes)
        for place, ref in enumerate(op.outputs):
            self.looks.pop(ref.tensor, None)
            if found is not None:  # a look at what the script holds is the first that is known of that
                value = self.now.setdefault(ref.storage, _Value(ref.storage, 0, at, weights))
                self.looks[ref.tensor] = _Look(value, found[place], weights)
        layer = bool(_LAYERS.match(op.name)) and bool(weights)
        return _Work(at, sources, list(makes.values()), layer, weights)

    def _choose(self, op: Op, read: Sequence[_Look | None]) -> bool:
        """Whether an op takes samples out of a tensor that stays, at indices that do not: they lie first, as there."""
        if op.name not in _CHOOSES or len(read) != 2 or read[0] is None or not op.outputs:
            return False
        (held,), (indices,), made = op.inputs[0], op.inputs[1] or op.inputs[-1], op.outputs[0]
        constant = read[1] is not None and read[1].lies is None
        if constant or read[0].lies is not None or held.storage not in read[0].weights:
            return False
        sizes, chosen, found = (ref.sizes for ref in (held, indices, made))
        if len(chosen) != 1 or found != chosen + sizes[1:] or chosen == sizes[:1]:
            return False
        what = _Chosen((indices.tensor, indices.storage), sizes[0])
        value = _Value(made.storage, chosen[0], weights=read[0].weights, chosen=what)
        self.now[made.storage] = value
        self.looks[made.tensor] = _Look(value, Lies(0, chosen[0]), read[0].weights)
        return True

    def _fetched(self, op: Op, refs: Sequence[Ref]) -> None:
        """What the loader reads or puts together: samples lie first."""
        drawn = op.random or any(ref.storage in self.drawn for ref in refs)
        for ref in op.outputs:
            sizes = ref.sizes
            self.looks.pop(ref.tensor, None)
            if drawn:
                self.drawn.add(ref.storage)
            elif sizes:
                value = self.now[ref.storage] = _Value(ref.storage, sizes[0])
                self.looks[ref.tensor] = _Look(value, Lies(0, sizes[0]), frozenset())

    def _draws(self, op: Op, refs: Sequence[Ref]) -> None:
        """Takes note of drawn numbers, and of whether Python reads one: then other ops might have run instead."""
        read = {ref.storage for ref in refs}
        fetch = op.place == "fetch"
        self.branches |= op.name in _READ_OUT and bool(read & self.drawn) and not fetch
        self.unread -= read
        made = {ref.storage for ref in op.outputs}
        others = {ref.storage for ref in refs if not ref.number} - made
        drawn = (op.random or bool(read & self.drawn)) and others <= self.drawn
        self.drawn = self.drawn | made if drawn else self.drawn - (made - read)
        if drawn and not fetch:
            self.unread |= made


def _followed(op: Op, read: Sequence[_Look | None]) -> list[Lies | None] | None:
    """Where samples lie in the results of an op; None where they are not followed any further."""
    if op.random or op.training or op.place != "loop" or value_numbering.tells_nothing(op):
        return None
    lies = [one.lies for one in read if one is not None]
    if len(lies) < len(read):
        return None
    if len({one.value.chosen for one in read if one is not None and one.lies}) > 1:
        return None  # what is made of two samples that were chosen apart is made of no one sample
    if any(lies):
        found = through(op, lies)
        return list(found) if found is not None else None
    return [None] * len(op.outputs) if op.name.startswith("aten::") else None


def judge(steps: Sequence[list[Op]], known: set[tuple[int, int]], still: set[int]) -> FrozenFeatures | None:
    """Of the last of several steps the ops that compute features of each sample with layers that stay; None: none do.

    known: (tensor, storage) that the script holds throughout; still: storages of them that nothing writes.
    """
    changed = {ref.storage for ops in steps for op in ops for ref in value_numbering.written(op)}
    flow = _Flow(known, still - changed)
    if not _reads_weights(steps[-1], flow):
        return None
    for ops, same in zip(steps, value_numbering.in_all(list(steps)), strict=True):
        flow.begin()
        at = 0
        for op, alike in zip(ops, same, strict=True):
            flow.take(op, at if op.place != "elsewhere" else -1, alike)
            at += op.place != "elsewhere"
    # What was drawn and no op has read was read by Python.
    return None if flow.branches or flow.unread else _features(list(flow.work.values()))


def _reads_weights(ops: Sequence[Op], flow: _Flow) -> bool:
    """Whether a step reads a tensor that stays outside of its fetches, as a layer has to."""
    read = (ref for op in ops if op.place != "fetch" for ref in op.refs)
    return any(ref.storage in flow.still and (ref.tensor, ref.storage) in flow.known for ref in read)


def _features(work: Sequence[_Work]) -> FrozenFeatures | None:
    """The ops that lead to the result of a layer or come of it, without those at the end that save nothing."""
    chosen = _of_layers(work)
    for one in reversed(work):
        # A single op between what others read at its begin and what they read of it: keeping the first is enough.
        if one.at in chosen and _ends(one.makes, chosen) and _ends(one.reads, chosen):
            chosen.discard(one.at)
    left = [one for one in work if one.at in chosen]
    chosen &= _of_layers(left)
    left = [one for one in left if one.at in chosen]
    given = {value.storage: value for one in left for value in one.reads if value.at < 0}
    sizes = {(value.size, value.chosen.of if value.chosen else 0) for value in given.values()}
    layers = sum(one.layer for one in left)
    if len(sizes) != 1 or min(sizes)[0] < 2 or not layers:
        return None
    ((size, chosen_of),) = sizes
    kept = sum(value.bytes for one in left for value in one.makes if _ends([value], chosen))
    read = sum(value.bytes for value in given.values() if not _ends([value], chosen))
    weights = frozenset().union(*(one.weights for one in left), *(value.weights for value in given.values()))
    ops = [one.at for one in left]
    return FrozenFeatures(ops, size, kept // size, read // size, layers, sorted(weights), chosen_of)


def _of_layers(work: Sequence[_Work]) -> set[int]:
    """Ops that come of a layer, or lead to one that does."""
    found = set[int]()
    for one in work:
        if one.layer or any(value.at in found for value in one.reads):
            found.add(one.at)
    for one in reversed(work):
        if any(reader in found for value in one.makes for reader in value.readers):
            found.add(one.at)
    return found


def _ends(values: Sequence[_Value], chosen: set[int]) -> bool:
    """Whether each of these values is read by an op beside the chosen ones, or by nobody."""
    return all(not value.readers or not chosen.issuperset(value.readers) for value in values)


def _bytes(ref: Ref) -> int:
    kind = str(ref.form[3])  # type: ignore[index]
    each = next((size for end, size in _BYTES.items() if kind.endswith(end)), 1)
    return each * ref.elements
