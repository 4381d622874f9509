"""What a backward pass does for ops that compute a result again: the nodes that go with them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from advisor.api import AUTOGRAD_NODE, FIRST_GRADIENT, Ints, Reused, StepOps, backward_passes

Pass = backward_passes.Pass
_NONE = np.empty(0, np.int64)


class RecordedBy(Struct, frozen=True, eq=False):
    """The nodes of the backward passes, by the op of the loop that recorded them.

    nodes   those with a number, on whichever thread;  of: for each the op, -1 where it is not known
    passes  the number of the pass that each belongs to
    """

    recorded: StepOps
    reused: Reused
    nodes: Ints
    of: Ints
    passes: Ints

    @classmethod
    def find(cls, recorded: StepOps, reused: Reused) -> RecordedBy:
        """Each op carries the count of recorded nodes at its start: those up to the count of the next op are its own.

        So of ops with one count all but the last recorded nothing, and what the last op of all recorded is not known.
        """
        events = recorded.trace.events
        nodes = np.flatnonzero(events.named(AUTOGRAD_NODE) & (events.sequence >= 0))
        ops = reused.ops[(events.sequence[reused.ops] >= 0) & (events.forward_thread[reused.ops] <= 0)]
        if not len(nodes) or not len(ops):
            return cls(recorded, reused, _NONE, _NONE, _NONE)
        at = np.searchsorted(events.sequence[ops], events.sequence[nodes], side="right") - 1
        of = np.where((at >= 0) & (at < len(ops) - 1), ops[np.maximum(at, 0)], -1)
        return cls(recorded, reused, nodes, of, np.cumsum(backward_passes.begins(events, nodes)))

    def by(self, rows: Ints) -> Ints:
        """The nodes that these ops recorded."""
        return self.nodes[np.isin(self.of, rows)]

    def gone(self, rows: Ints, firsts: Ints) -> Ints:
        """What goes with these ops where the results of the first ones are used instead.

        In a pass that does not go through the first ops' nodes, those would run instead; what was kept from before the
        loop, without first ops, has no backward pass.
        """
        own, theirs = self.by(rows), self.by(firsts)
        return np.union1d(self._beside(own, theirs) if len(firsts) else own, self.sums(self._beside(theirs, own)))

    def sums(self, nodes: Ints) -> Ints:
        """Where the engine adds up the gradients of two uses: additions directly in these nodes, in no derivative."""
        sums = np.flatnonzero(self.recorded.trace.events.exactly("aten::add", "aten::add_"))
        return sums[np.isin(self.recorded.nesting.parent[sums], nodes)]

    def passes_again(self, pairs: Ints) -> tuple[Ints, Ints]:
        """Backward passes of losses that were computed again: (ops of the loop that filled their gradients, nodes).

        pairs: (n, 2) an op that computes a value again, and the earlier one. From one value, and a gradient that
        `backward()` filled, two passes through the same nodes compute the same. nodes: with those that store gradients.
        """
        of_loss = dict(self._of_losses()) if len(pairs) else {}
        found: dict[int, list[int]] = {}
        for again, first in pairs.tolist():
            if again in of_loss and first in of_loss and again != first:
                (fill, mine), (_, theirs) = of_loss[again], of_loss[first]
                if self._form(mine) == self._form(theirs):
                    found[fill] = [*mine.nodes, *(store.node for store in mine.stores)]
        nodes = {row for one in found.values() for row in one}
        return np.array(sorted(found), np.int64), np.array(sorted(nodes), np.int64)

    def _beside(self, nodes: Ints, others: Ints) -> Ints:
        """Those of the nodes that run in a backward pass in which some of the others run."""
        mine = self.passes[np.searchsorted(self.nodes, nodes)]
        return nodes[np.isin(mine, self.passes[np.searchsorted(self.nodes, others)])]

    def _of_losses(self) -> Iterator[tuple[int, tuple[int, Pass]]]:
        """(the op that computed a loss, (the op that filled its gradient just before the pass, the pass))."""
        recorded, ops = self.recorded, self.reused.ops
        events = recorded.trace.events
        op_of = dict(zip(self.nodes.tolist(), self.of.tolist(), strict=True))
        for one in backward_passes.BackwardPasses(recorded.trace, recorded.steps, recorded.nesting).all:
            root = next((row for row in one.nodes if row in op_of), -1)
            before = int(np.searchsorted(events.end_ns[ops], events.start_ns[root], side="right")) - 1
            if op_of.get(root, -1) >= 0 and before >= 0 and events.text(int(ops[before])) == FIRST_GRADIENT:
                yield op_of[root], (int(ops[before]), one)

    def _form(self, one: Pass) -> list[int]:
        """The names of the numbered nodes: what passes through equal graphs have in common."""
        events, nodes = self.recorded.trace.events, np.array(one.nodes, np.int64)
        form: list[int] = events.name[nodes[events.sequence[nodes] >= 0]].tolist()
        return form
