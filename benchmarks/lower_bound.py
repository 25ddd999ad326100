"""What no engine can go below: every text read, cut into words, and each word hashed once, by memfold's own reader.

python benchmarks/lower_bound.py IN.parquet
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from memfold_flows.cluster import read_word_sets
from memfold_flows.progress import ignore

if __name__ == "__main__":
    parts = read_word_sets(Path(sys.argv[1]), None, threads=len(os.sched_getaffinity(0)), report=ignore)
    print(f"{sum(len(part) for part in parts):,} texts, {sum(len(part.words) for part in parts):,} words")
