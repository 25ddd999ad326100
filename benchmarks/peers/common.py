"""What the runners of the peers share: texts in, clusters out, and components of the links that a peer finds."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

THRESHOLD = 0.7
PERMUTATIONS = 128
WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """The words that each peer gets which lets its caller choose."""
    return WORD.findall(text.lower())


def read() -> tuple[list[int], list[str]]:
    """The ids and texts of the file that is named first."""
    table = pq.read_table(sys.argv[1], columns=["id", "text"])
    return table["id"].to_pylist(), table["text"].to_pylist()


def write(ids: list[int], first_of: Iterable[int]) -> None:
    """Write the cluster of each id, called by the id of its first member."""
    clusters = [ids[first] for first in first_of]
    pq.write_table(pa.table({"id": ids, "cluster": clusters}), Path(sys.argv[2]))


class Components:
    """Union-find over row numbers; the root is the smallest."""

    def __init__(self, count: int) -> None:
        self.parent = list(range(count))

    def root(self, member: int) -> int:
        parent = self.parent
        while parent[member] != member:
            parent[member] = parent[parent[member]]
            member = parent[member]
        return member

    def join(self, one: int, other: int) -> None:
        low, high = sorted((self.root(one), self.root(other)))
        self.parent[high] = low

    def roots(self) -> list[int]:
        return [self.root(member) for member in range(len(self.parent))]
