"""Who stays and who merges into whom: every member is a verified match of its survivor, never a friend of a friend."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from memfold.links import Links

FREE, STAYS, TAKEN = range(3)


class Grouping:
    """The survivor of each node, kept true to the pairs judged so far.

    Nodes that no free node contains go first, in survivor order, and each takes every free node that it may take; then
    what is left goes the same way. So no two nodes that stay may merge, as far as pairs are judged.

    ``apart``: the nodes that a person keeps apart from each node; no survivor takes two of them, nor one beside itself.
    """

    def __init__(self, survivor_order: Sequence[int], apart: Mapping[int, set[int]]) -> None:
        self.apart = apart
        self.survivor_of = list(range(len(survivor_order)))
        self._order = list(survivor_order)
        self._takes: defaultdict[int, list[int]] = defaultdict(list)
        self._contains: defaultdict[int, list[int]] = defaultdict(list)
        self._touches: defaultdict[int, list[int]] = defaultdict(list)
        self._changed: set[int] = set()
        self._asked: set[tuple[int, int]] = set()

    def add(self, judged: Links) -> None:
        """Take note of judged pairs; those that may not merge leave no trace."""
        links = judged.where(judged.is_open)
        takes = (links.left_takes.tolist(), links.right_takes.tolist())
        for left, right, left_takes, right_takes in zip(links.left.tolist(), links.right.tolist(), *takes, strict=True):
            self.link(left, right, left_takes=left_takes, right_takes=right_takes)

    def link(self, left: int, right: int, *, left_takes: bool, right_takes: bool) -> None:
        """Note that one of two nodes, or either, may stay for both."""
        self._touches[left].append(right)
        self._touches[right].append(left)
        self._changed |= {left, right}
        for taker, taken, takes, is_taken_too in (
            (left, right, left_takes, right_takes),
            (right, left, right_takes, left_takes),
        ):
            if takes:
                self._takes[taker].append(taken)
                if not is_taken_too:
                    self._contains[taker].append(taken)

    def regroup(self) -> list[tuple[int, int]]:
        """Group again what new pairs touch; returns the pairs that must be judged before the groups are final.

        Those are a survivor and the other neighbours of a node that it took: they may match the survivor as well,
        though no candidate said so.
        """
        reached = self._reached(self._changed)
        self._changed = set()
        asked = _Round(self, reached).run()
        new = [pair for pair in asked if pair not in self._asked]
        self._asked.update(new)
        return new

    def _reached(self, nodes: Iterable[int]) -> list[int]:
        """Everything that these nodes are linked to, near or far, in survivor order."""
        reached = set(nodes)
        waiting = list(reached)
        while waiting:
            new = set(self._touches[waiting.pop()]) - reached
            reached |= new
            waiting += new
        return sorted(reached, key=self._order.__getitem__)


class _Round:
    """One grouping from scratch of nodes that are linked to nothing else."""

    def __init__(self, grouping: Grouping, nodes: list[int]) -> None:
        self.grouping = grouping
        self.nodes = nodes
        self.state = dict.fromkeys(nodes, FREE)
        self.containers = dict.fromkeys(nodes, 0)
        for node in nodes:
            grouping.survivor_of[node] = node
            for inner in grouping._contains[node]:
                self.containers[inner] += 1
        self.released: list[int] = []
        self.asked: set[tuple[int, int]] = set()

    def run(self) -> set[tuple[int, int]]:
        rest = iter(self.nodes)
        ready = [node for node in self.nodes if self.containers[node] == 0]
        while ready or (ready := self._next_in_circle(rest)):
            self.released = []
            for node in ready:
                if self.state[node] == FREE:
                    self._survive(node)
            ready = sorted(self.released, key=self.grouping._order.__getitem__)
        return self.asked

    def _next_in_circle(self, rest: Iterable[int]) -> list[int]:
        """The first free node where each is contained in another free one, which only a circle of pairs can bring."""
        return next(([node] for node in rest if self.state[node] == FREE), [])

    def _survive(self, survivor: int) -> None:
        self._settle(survivor, STAYS)
        taken = self._together([node for node in self.grouping._takes[survivor] if self.state[node] == FREE])
        for node in taken:
            self._settle(node, TAKEN)
            self.grouping.survivor_of[node] = survivor
        known = {survivor, *self.grouping._touches[survivor]}
        for node in taken:
            for other in self.grouping._touches[node]:
                if self.state[other] == FREE and other not in known:
                    self.asked.add((survivor, other))

    def _together(self, nodes: list[int]) -> list[int]:
        """Those of these nodes that no person keeps apart from another one, the first in survivor order first."""
        if not any(node in self.grouping.apart for node in nodes):
            return nodes
        together: list[int] = []
        for node in sorted(nodes, key=self.grouping._order.__getitem__):
            if self.grouping.apart.get(node, set()).isdisjoint(together):
                together.append(node)
        return together

    def _settle(self, node: int, state: int) -> None:
        self.state[node] = state
        for inner in self.grouping._contains[node]:
            self.containers[inner] -= 1
            if self.containers[inner] == 0 and self.state[inner] == FREE:
                self.released.append(inner)
