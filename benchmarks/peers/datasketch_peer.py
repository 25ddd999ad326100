"""datasketch its fastest way: MinHash.generator with xxhash, unchecked bulk insertion, links read from its tables."""

from __future__ import annotations

import common
import xxhash
from datasketch import MinHash, MinHashLSH

ids, texts = common.read()
index = MinHashLSH(threshold=common.THRESHOLD, num_perm=common.PERMUTATIONS)
signatures = MinHash.generator(
    ([word.encode() for word in set(common.words(text))] for text in texts),
    num_perm=common.PERMUTATIONS,
    hashfunc=xxhash.xxh32_intdigest,
)
with index.insertion_session(buffer_size=50_000) as session:
    for row, signature in enumerate(signatures):
        session.insert(row, signature, check_duplication=False)
components = common.Components(len(ids))
for table in index.hashtables:
    for key in table.keys():  # noqa: SIM118 - a table of datasketch is no dict
        first, *others = table.get(key)
        for other in others:
            components.join(first, other)
common.write(ids, components.roots())
