"""rensa: signatures of token sets, bulk insertion, all rows queried; its candidates as they are, as it checks none."""

from __future__ import annotations

from itertools import chain

import common
import numpy as np
from rensa import RMinHash, RMinHashLSH
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

ROWS_PER_QUERY = 2_000
# A hot cluster has a link for each of its pairs; more than this are put together before the next are asked for.
MOST_LINKS = 50_000_000

ids, texts = common.read()
index = RMinHashLSH(threshold=common.THRESHOLD, num_perm=common.PERMUTATIONS, num_bands=16)
signatures = RMinHash.from_token_sets([common.words(text) for text in texts], num_perm=common.PERMUTATIONS, seed=42)
index.insert_many(signatures)
rows = np.arange(len(ids))
links: list[np.ndarray] = []


def first_of_component() -> np.ndarray:
    """The smallest row of the component of each row, by the links found so far."""
    left, right = np.concatenate(links, axis=1)
    graph = coo_matrix((np.ones(len(left), np.int8), (left, right)), shape=(len(ids), len(ids)))
    component = connected_components(graph, directed=False)[1]
    first = np.full(component.max() + 1, len(ids))
    np.minimum.at(first, component, rows)
    return first[component]


for start in range(0, len(ids), ROWS_PER_QUERY):
    found = index.query_all(signatures[start : start + ROWS_PER_QUERY])
    counts = np.fromiter(map(len, found), np.int64, len(found))
    right = np.fromiter(chain.from_iterable(found), np.int32, int(counts.sum()))
    left = np.repeat(np.arange(start, start + len(found), dtype=np.int32), counts)
    links.append(np.stack((left[right > left], right[right > left])))
    if sum(part.shape[1] for part in links) > MOST_LINKS:
        links = [np.stack((rows.astype(np.int32), first_of_component().astype(np.int32)))]
common.write(ids, first_of_component().tolist())
