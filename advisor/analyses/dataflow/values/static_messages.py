"""Rows that are gathered by a list of edges, scaled by a number each, and added up by another; all of these stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from advisor.analyses.dataflow.observed.value_numbering import Op

_GATHERS = {"aten::index": 1, "aten::index_select": 2}  # the argument with the indices
_SCATTERS = {"aten::index_add": 2, "aten::index_add_": 2, "aten::scatter_add": 2, "aten::scatter_add_": 2}
_SCALES = "aten::mul"


def find(ops: Iterable[Op], resting: Iterable[int]) -> Iterator[tuple[int, int, int]]:
    """(gather, scaling, scatter) of a step, places among its ops; with nothing else that reads what lies between.

    resting: storages that the script held, and that neither an op nor an optimizer wrote.
    """
    unchanged, known = set(resting), [op for op in ops if op.place != "elsewhere"]
    makers = _makers(known)
    # How many ops of the loop read what each op made; the number of a tensor is given to others when it is gone.
    reads = Counter(
        maker for op, its in zip(known, makers, strict=True) if op.place == "loop" for maker in set().union(*its)
    )

    def only(place: int, argument: int) -> int:
        """The op that made an argument of an op and that nothing else reads; -1 where it is none."""
        its = makers[place][argument] if argument < len(makers[place]) else []
        return its[0] if len(its) == 1 and its[0] >= 0 and reads[its[0]] == 1 else -1

    def stays(place: int, argument: int) -> bool:
        given = known[place].inputs[argument] if argument < len(known[place].inputs) else ()
        return len(given) == 1 and given[0].storage in unchanged

    for place, op in enumerate(known):
        at = _SCATTERS.get(op.name)
        scaling = only(place, 3) if at is not None and op.place == "loop" and stays(place, at) else -1
        if scaling < 0 or known[scaling].name != _SCALES:
            continue
        for rows, numbers in ((0, 1), (1, 0)):
            gather = only(scaling, rows)
            indices = _GATHERS.get(known[gather].name) if gather >= 0 else None
            if indices is not None and stays(scaling, numbers) and stays(gather, indices):
                yield gather, scaling, place


def _makers(known: Sequence[Op]) -> list[list[list[int]]]:
    """For each argument of each op the ops that made its tensors; -1 for what was there before."""
    made: dict[int, int] = {}
    found = []
    for place, op in enumerate(known):
        found.append([[made.get(ref.tensor, -1) for ref in argument] for argument in op.inputs])
        made.update((ref.tensor, place) for ref in op.outputs)
    return found
