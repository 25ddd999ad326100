"""memfold cluster beside its peers on one archive, each in an environment of its own, in interleaved runs.

    python benchmarks/peer_comparison.py [--size 100000] [--runs 3] [--peers datasketch rensa datatrove textdedup]

Writes results/peers-SIZE.csv and .svg beside this file: CPU seconds (those of the same command on ten rows taken off),
wall seconds, peak memory of the process tree, and up to 200,000 rows the agreement with the exact join.
"""

from __future__ import annotations

import argparse
import csv
import importlib.metadata
import json
import random
import resource
import statistics
import subprocess
import sys
import time
import venv
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import workload

HERE = Path(__file__).parent
WORK = HERE / ".work"
RESULTS = HERE / "results"
EXACT_JOIN_ROWS = 200_000
#: A heartbeat that an agent writes down again and again, 5,000 times: every twentieth of 100,000 rows.
ROWS_PER_VARIATION = 20
ROWS_WITH_HEARTBEAT = 100_000
#: Then 150,000 rows without one, and the next heartbeat begins.
ROWS_PER_HEARTBEAT = 250_000
#: Less than this cannot be told from the start of a process; ratios are taken to no less.
LEAST_SECONDS = 0.2
ROWS_PER_GROUP = 100_000
OWN = ("memfold", "lower bound")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a command took, its child processes included."""

    cpu_seconds: float
    wall_seconds: float
    peak_megabytes: float


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--size", type=lambda text: int(float(text)), default=100_000)
    arguments.add_argument("--runs", type=int, default=3)
    arguments.add_argument("--peers", nargs="*", default=["datasketch", "rensa", "datatrove", "textdedup"])
    given = arguments.parse_args()
    WORK.mkdir(exist_ok=True)
    RESULTS.mkdir(exist_ok=True)
    ten, archive = (make_archive(count) for count in (10, given.size))
    commands = engines(given.peers)
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    start_ups: dict[str, list[Cost]] = {name: [] for name in commands}
    for number in range(given.runs):
        for name, command in commands.items():
            try:
                start_up = measure([*command, str(ten), str(output(name, 10))])
                cost = measure([*command, str(archive), str(output(name, given.size))])
            except RuntimeError as error:  # a peer's failure is a line of the report, and costs no one else's numbers
                print(f"run {number + 1}, {name} failed: {error}", flush=True)
                continue
            start_ups[name].append(start_up)
            costs[name].append(cost)
            print(f"run {number + 1}, {name}: {costs[name][-1]}", flush=True)
    costs = {name: runs for name, runs in costs.items() if runs}
    rows = table(costs, start_ups, archive, given.size)
    write(rows, given.size)


def make_archive(count: int) -> Path:
    """The workload as Parquet, made once."""
    path = WORK / f"texts-{count}.parquet"
    if not path.exists():
        rows = list(workload.rows(count, scopes=max(count // 250, 1)))
        heartbeats = [_heartbeat(number) for number in range(count // ROWS_PER_HEARTBEAT + 1)]
        texts = [
            f"{heartbeats[number // ROWS_PER_HEARTBEAT]} {number}" if _is_heartbeat(number) else row.text
            for number, row in enumerate(rows)
        ]
        columns = {"id": list(range(count)), "scope": [row.scope for row in rows], "text": texts}
        pq.write_table(pa.table(columns), path, row_group_size=ROWS_PER_GROUP, compression="zstd")
    return path


def _is_heartbeat(row: int) -> bool:
    return row % ROWS_PER_VARIATION == 0 and row % ROWS_PER_HEARTBEAT < ROWS_WITH_HEARTBEAT


def _heartbeat(number: int) -> str:
    """Twenty words that no other heartbeat shares."""
    writer = workload.Writer(random.Random(number))
    return " ".join(writer.random.sample(writer.words, 20))


def engines(peers: list[str]) -> dict[str, list[str]]:
    """The command of each engine, to which the archive and the output are added."""
    memfold = str(Path(sys.executable).with_name("memfold"))
    commands = {
        "lower bound": [sys.executable, str(HERE / "lower_bound.py")],
        "memfold": [memfold, "cluster", "--quiet"],
    }
    for peer in peers:
        commands[peer] = [str(environment(peer)), str(HERE / "peers" / f"{peer}_peer.py")]
    return commands


def environment(peer: str) -> Path:
    """The Python of a peer's own virtual environment, made at the first call."""
    folder = WORK / f"venv-{peer}"
    python = folder / "bin/python"
    if not (folder / ".installed").exists():
        print(f"installing {peer}", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        requirements = HERE / "peers" / f"requirements-{peer}.txt"
        subprocess.run([str(python), "-m", "pip", "install", "-q", "-r", str(requirements)], check=True)
        (folder / ".installed").touch()
    return python


def output(engine: str, size: int) -> Path:
    return WORK / f"clusters-{engine.replace(' ', '-')}-{size}.parquet"


def measure(command: list[str]) -> Cost:
    """Run a command; its CPU time and memory are those of all processes that it starts.

    Raises:
        RuntimeError: the command failed; its last words are in the message.
    """
    began, before = time.perf_counter(), _waited_for()
    with (WORK / "log.txt").open("w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        root, peak, seconds = psutil.Process(process.pid), 0, dict[int, float]()
        while process.poll() is None:
            memory = 0
            for part in _tree(root):
                try:
                    times = part.cpu_times()
                    seconds[part.pid] = times.user + times.system
                    memory += part.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            peak = max(peak, memory)
            time.sleep(0.02)
        if process.returncode:
            log.seek(0)
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {log.read()[-2000:]}")
    # What was polled misses the last moments; what was waited for misses processes that nobody waited for.
    return Cost(max(sum(seconds.values()), _waited_for() - before), time.perf_counter() - began, peak / 2**20)


def _waited_for() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _tree(root: psutil.Process) -> list[psutil.Process]:
    try:
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def table(
    costs: dict[str, list[Cost]], start_ups: dict[str, list[Cost]], archive: Path, size: int
) -> list[dict[str, object]]:
    """One row an engine: medians, and how many times the CPU seconds of memfold each took."""
    agreement = _agreement(archive, list(costs), size) if size <= EXACT_JOIN_ROWS else {}
    cpu = {name: _median_cpu(costs[name]) - _median_cpu(start_ups[name]) for name in costs}
    return [
        {
            "engine": name,
            "version": _version(name),
            "rows": size,
            "cpu_seconds": round(cpu[name], 2),
            "times_memfold": round(cpu[name] / max(cpu["memfold"], LEAST_SECONDS), 2),
            "wall_seconds": round(statistics.median(cost.wall_seconds for cost in all_runs), 2),
            "peak_megabytes": round(max(cost.peak_megabytes for cost in all_runs)),
            "pair_recall": agreement.get(name, {}).get("pair_recall", ""),
            "pair_precision": agreement.get(name, {}).get("pair_precision", ""),
            "bcubed_recall": agreement.get(name, {}).get("bcubed_recall", ""),
        }
        for name, all_runs in costs.items()
    ]


def _median_cpu(costs: list[Cost]) -> float:
    return statistics.median(cost.cpu_seconds for cost in costs)


def _agreement(archive: Path, names: list[str], size: int) -> dict[str, dict[str, float]]:
    files = [str(output(name, size)) for name in names if name != "lower bound"]
    command = [sys.executable, str(HERE / "exact_join.py"), str(archive), *files]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return dict(zip((name for name in names if name != "lower bound"), map(json.loads, lines), strict=True))


def _version(engine: str) -> str:
    if engine in OWN:
        return importlib.metadata.version("memfold")
    package = {"textdedup": "text-dedup"}.get(engine, engine)
    asked = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run(
        [str(environment(engine)), "-c", asked], check=True, capture_output=True, text=True
    ).stdout.strip()


def write(rows: list[dict[str, object]], size: int) -> None:
    """The table as CSV and on the terminal, and the plot."""
    import altair

    with (RESULTS / f"peers-{size}.csv").open("w", newline="") as file:
        lines = csv.DictWriter(file, rows[0])
        lines.writeheader()
        lines.writerows(rows)
    for row in rows:
        print("  ".join(f"{value!s:>12}" for value in row.values()))
    chart = altair.Chart(
        altair.Data(values=rows), title=f"CPU seconds to cluster {size:,} texts (shorter is better)"
    ).mark_bar()
    bars = chart.encode(y=altair.Y("engine:N", sort="x", title=None), x=altair.X("cpu_seconds:Q", title="CPU seconds"))
    numbers = bars.mark_text(align="left", dx=4).encode(text="cpu_seconds:Q")
    (bars + numbers).properties(width=520).save(RESULTS / f"peers-{size}.svg")


if __name__ == "__main__":
    main()
