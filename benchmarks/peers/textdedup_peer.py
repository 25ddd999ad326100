"""text-dedup: its own minhash program, on single words; the clusters are read from the union-find that it saves."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import common

with tempfile.TemporaryDirectory() as folder:
    options = {
        "path": "parquet",
        "data_files": sys.argv[1],
        "split": "train",
        "cache_dir": f"{folder}/cache",
        "output": f"{folder}/out",
        "column": "text",
        "batch_size": "10000",
        "num_perm": str(common.PERMUTATIONS),
        "threshold": str(common.THRESHOLD),
        "ngram": "1",
        "min_length": "1",
        "num_proc": "2",
        "hash_func": "xxh3",
        "hash_bits": "32",
    }
    command = [sys.executable, "-m", "text_dedup.minhash", "--debug"]
    command += [part for name, value in options.items() for part in (f"--{name}", value)]
    offline = {"HF_HOME": folder, "HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    subprocess.run(command, env={**os.environ, **offline}, check=True, stdout=subprocess.DEVNULL)
    saved = pickle.loads(Path(f"{folder}/out/uf.pkl").read_bytes())
parent = getattr(saved, "parent", saved)


def root(row: int) -> int:
    while parent.get(row, row) != row:
        row = parent[row]
    return row


rows, _ = common.read()
common.write(rows, [root(row) for row in range(len(rows))])
