"""Operations whose time grows with the container that they run on, at lines whose cost is known."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from advisor.api import Constant, Container, Finding, Fix, LineCost, Price, RankRecord, Saving, Source, constant

from ._places import first_of, made_at, place
from ._side_effect_factors import SIDE_EFFECTS
from ._words import count

# Of a line's time at least so much is the operation, by what it takes at most: else it is something else there.
_MATERIAL = 0.3
# By what is certain of it, where that is known for the first run alone.
_MATERIAL_AT_LEAST = 0.1
# What is only counted once though a line may run it often is worth naming from here on, µs at least.
_LONG_US = 2.0

_RING = Fix(
    "Keep the entries in a list that is used as a ring: a list is indexed in constant time",
    "exact",
    "self.memory = deque(maxlen=capacity)\n\nself.memory.append(entry)",
    "self.memory, self.next = [], 0\n\nif len(self.memory) < capacity:\n    self.memory.append(entry)\nelse:\n"
    "    self.memory[self.next] = entry\n    self.next = (self.next + 1) % capacity",
)
_SET = Fix(
    "Search a set or a dict, which is made once: that takes constant time",
    "exact",
    "if item in self.items:  # a list",
    "self.known = set(self.items)  # once\n\nif item in self.known:",
)
_DEQUE = Fix(
    "Use a deque: it adds and removes entries at both ends in constant time",
    "exact",
    "queue.pop(0)  # a list",
    "queue = deque(maxlen=size)  # once; from collections import deque\n\nqueue.popleft()",
)
_LIST = Fix(
    "Collect the entries in a list, or write them into an array that is made once at full size",
    "exact",
    "history = np.append(history, value)",
    "history.append(value)  # a list\n\nhistory = np.array(history)  # once, when it is needed",
)
_COLUMNS = Fix(
    "Convert the table to NumPy arrays or tensors once, and index those",
    "exact",
    "row = self.frame.iloc[index]",
    "self.rows = torch.from_numpy(frame[columns].to_numpy())  # once\n\nrow = self.rows[index]",
)
_GROUPS = Fix(
    "Split the table into groups once, before the training, and look each group up",
    "exact",
    'track = self.frame[self.frame["vessel"] == vessel]',
    'self.tracks = dict(tuple(frame.groupby("vessel")))  # once\n\ntrack = self.tracks[vessel]',
)
_CUMULATED = Fix(
    "Add the probabilities up once, and search the sums for each draw",
    "draws",
    "negatives = rng.choice(items, size, p=self.chances)",
    "self.sums = self.chances.cumsum()  # once\n\nnegatives = self.sums.searchsorted(rng.random(size))\n"
    "# draws with replacement, as rng.choice does unless it is told otherwise",
)


_BY_ROW = Fix(
    "Store the table by rows: copy it once, before the training",
    "exact",
    "self.features = table.to_numpy()  # numbers of one column lie side by side",
    "self.features = np.ascontiguousarray(table.to_numpy())  # numbers of one row lie side by side",
)


class _Slow(Struct, frozen=True):
    """What an operation is called and why it is slow; each_us: what one takes, least and most."""

    what: str
    why: str
    fix: Fix
    each_us: Callable[[Container], tuple[float, float]]


def _by_entry(each: Constant) -> Callable[[Container], tuple[float, float]]:
    low, high = each.range
    return lambda one: (one.length * low / 1e3, one.length * high / 1e3)


def _read(one: Container) -> tuple[float, float]:
    """Entries of a deque: as capture measured on this one, else by its length."""
    low_us, high_us = _by_entry(constant("containers.deque_entry_ns"))(one)
    return (one.read_us, max(one.read_us, high_us)) if one.read_us is not None else (low_us, high_us)


def _by_byte(each: Constant) -> Callable[[Container], tuple[float, float]]:
    low, high = each.range
    return lambda one: (one.bytes * low / 1e3, one.bytes * high / 1e3)


def _weighted(one: Container) -> tuple[float, float]:
    fixed_us, each_ns = constant("containers.weighted_draw_us").range, constant("containers.weighted_entry_ns").range
    low_us, high_us = (us + one.length * ns / 1e3 for us, ns in zip(fixed_us, each_ns, strict=True))
    return low_us, high_us


def _filter(one: Container) -> tuple[float, float]:
    """By the length of the table at least, where its keys are numbers; strings take up to seventy times as long."""
    fixed_us, each_ns = constant("containers.frame_filter_us").low, constant("containers.filter_row_ns").low
    return fixed_us + one.length * each_ns / 1e3, math.inf


def _each(each: Constant) -> Callable[[Container], tuple[float, float]]:
    return lambda _: each.range


def _apart(one: Container) -> tuple[float, float]:
    """Rows whose numbers are apart: as capture measured on this array, to all that the line takes."""
    return one.read_us or 0.0, math.inf


_WALKED = "each is reached from its nearer end"
_SEARCHED = "all are compared until one is found"
_ROW = "each row becomes a new object"
_COMPARED = "each time all of them are read"
_FAR = "the numbers of a row are far from each other in memory"
_SEARCH = _Slow(
    "searches the {kind} `{name}` of {length} entries",
    _SEARCHED,
    _SET,
    _by_entry(constant("containers.search_entry_ns")),
)
# (container, operation) -> words and fix.
_TABLE = {
    ("deque", "index"): _Slow("reads the deque `{name}` of {length} entries by index", _WALKED, _RING, _read),
    ("deque", "draw"): _Slow("draws entries from the deque `{name}` of {length}", _WALKED, _RING, _read),
    **{(kind, "search"): _SEARCH for kind in ("deque", "list", "tuple")},
    ("list", "front"): _Slow(
        "adds or removes at the front of the list `{name}` of {length} entries",
        "all others are moved",
        _DEQUE,
        _by_entry(constant("containers.front_entry_ns")),
    ),
    ("ndarray", "grow"): _Slow(
        "makes the array `{name}` of {length} entries longer",
        "all are copied each time",
        _LIST,
        _by_byte(constant("containers.grow_byte_ns")),
    ),
    ("ndarray", "by_row"): _Slow("takes rows of the array `{name}`, which is stored by columns", _FAR, _BY_ROW, _apart),
    ("DataFrame", "row"): _Slow(
        "takes rows of the DataFrame `{name}` one by one", _ROW, _COLUMNS, _each(constant("containers.frame_row_us"))
    ),
    ("DataFrame", "rows"): _Slow(
        "iterates over the rows of the DataFrame `{name}`", _ROW, _COLUMNS, _each(constant("containers.frame_row_us"))
    ),
    **{
        (kind, "weights"): _Slow(
            "draws by the {length} probabilities `{name}`", "all are checked and added up", _CUMULATED, _weighted
        )
        for kind in ("ndarray", "list")
    },
    ("DataFrame", "filter"): _Slow(
        "compares all {length} rows of the DataFrame `{name}` with a key", _COMPARED, _GROUPS, _filter
    ),
    ("Series", "row"): _Slow(
        "takes entries of the Series `{name}` one by one", _ROW, _COLUMNS, _each(constant("containers.series_row_us"))
    ),
}


class SlowContainer(Struct, frozen=True):
    """An operation that much of a line's time is.

    us  µs of each step that it takes, least and most; most is the line's own time. (0, line) if it is not known how
        often the line runs it
    others  further lines that run it on this container; `us` includes theirs
    """

    container: Container
    us: tuple[float, float]
    others: tuple[Source, ...] = ()

    @property
    def line(self) -> Source:
        """The line that runs it."""
        return Source(self.container.file, self.container.line, self.container.function, "call")

    @property
    def made(self) -> tuple[Source, ...]:
        """Where the container is made, if that is known."""
        return made_at(self.container.made)

    @property
    def said(self) -> str:
        """A sentence that names it and its reason."""
        one, slow = self.container, self._slow
        what = slow.what.format(name=one.name, kind=one.kind, length=count(one.length))
        made = f", made{place(self.made[0])}" if self.made else ""
        too = f", and so does {_at(self.others[0])}" if self.others else ""
        return f"{_at(self.line)} {what}{made}{too}: {slow.why}"

    @property
    def fix(self) -> Fix:
        """What to use."""
        return self._slow.fix

    @property
    def _slow(self) -> _Slow:
        return _TABLE[self.container.kind, self.container.operation]


def _at(line: Source) -> str:
    """'train.py:25'."""
    return place(line).strip().removeprefix("at ")


def slow_container(record: RankRecord | None, lines: Iterable[LineCost], us: float) -> SlowContainer | None:
    """The operation on a container that much of these lines' time is, the longest; None if there is none.

    us: un-profiled µs of each step that all of the lines take.
    """
    costs = {line.source.place: line for line in lines}
    whole_us = sum(line.us for line in costs.values())
    found: dict[tuple[str, str, str], list[SlowContainer]] = defaultdict(list)
    for one in record.containers if record else ():
        line = costs.get((one.file, one.line))
        if line is not None and whole_us and (one.kind, one.operation) in _TABLE:
            slow = _of_line(one, line, us * line.us / whole_us)
            if slow is not None:
                found[one.file, one.name, one.operation].append(slow)
    most = max(map(_together, found.values()), key=lambda slow: slow.us[1], default=None)
    return most if most is not None and most.us[1] >= _MATERIAL * us else None


def _together(found: Sequence[SlowContainer]) -> SlowContainer:
    """One operation on one container at several lines: that which takes most, with the time of all."""
    first, *others = sorted(found, key=lambda slow: -slow.us[1])
    us = (sum(slow.us[0] for slow in found), sum(slow.us[1] for slow in found))
    return SlowContainer(first.container, us, tuple(slow.line for slow in others))


def _of_line(one: Container, line: LineCost, line_us: float) -> SlowContainer | None:
    low_us, high_us = _TABLE[one.kind, one.operation].each_us(one)
    if one.often is None:
        return SlowContainer(one, (0.0, line_us)) if low_us >= _LONG_US else None
    # The head of a loop runs once more than its body, and is what a loop over rows is known by.
    times = one.often * (1.0 if one.operation == "rows" else line.visits)
    # How many rows one index takes was seen at the line's first run, and others may take more.
    certain, least = (low_us, _MATERIAL_AT_LEAST) if math.isinf(high_us) else (high_us, _MATERIAL)
    if times * certain < least * line_us:
        return None
    return SlowContainer(one, (min(times * low_us, line_us), line_us))


def in_container(found: Finding, slow: SlowContainer | None, price: Price) -> Finding:
    """The finding on lines of which much is such an operation: what it is, at both places, and what it saves."""
    if slow is None:
        return found
    facts = {"container": slow.container.kind, "entries": slow.container.length, "container_us": list(slow.us)}
    return replace(
        found,
        message=f"{found.message.rstrip('.')}; {slow.said}.",
        where=first_of((slow.line, *slow.others, *slow.made), found.where),
        fix=slow.fix,
        facts={**found.facts, **facts},
        saving=_saving(found.saving, slow, price),
    )


def _saving(found: Saving | None, slow: SlowContainer, price: Price) -> Saving:
    """What the operation takes at least, to all that its line takes; not more than the finding says of its lines."""
    most_us = slow.us[1] * SIDE_EFFECTS
    how = "low: what the operation takes at least at this length; high: all of its line, and what that evicts from the "
    how += "caches"
    high_us = min(found.high_us, most_us) if found is not None and found.high_us else most_us
    return price.of_us(min(slow.us[0], high_us), high_us, how, basis="modelled")
