"""The pass in process, behind PraisonAI's two protocols: ``Consolidator`` and ``AsyncConsolidator``.

They take the live memory of an agent (``agent._memory_instance``): a ``Memory`` on SQLite, whose files are opened
beside the object; a ``FileMemory``, whose lock is held while its files are rewritten and which reads them after; or
one without files, by its own listing and deletes (``stores/praisonai_live.py``), which no undo can reach afterwards.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memfold.contract import ConsolidationResult
from memfold.errors import BadUsage
from memfold_flows.streams import count

if TYPE_CHECKING:
    from memfold_flows.pipeline import StepRunner
    from memfold_flows.receipts import Receipt
    from memfold_flows.runs import RunDirectory
    from memfold_flows.stores.base import MemoryStore
    from memfold_flows.stores.praisonai_live import Wait

_CONFLICTS_NAMED = 100


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Consolidator:
    """Consolidates a PraisonAI memory in place, or leaves it as it is and says why.

    The thresholds are those of ``memfold run``; what is not given comes from the environment and ``memfold.yaml``, and
    so does the model that may propose. But for ``max_loss_fraction``: by PraisonAI's protocol it is an argument of each
    pass, and 0.25 where it is left out.

    Raises:
        BadUsage: ``max_loss_fraction`` is given here, where it would have no effect.
    """

    def __init__(self, *, clock: Callable[[], datetime] = _utc_now, **thresholds: Any) -> None:
        if "max_loss_fraction" in thresholds:
            raise BadUsage(
                f"max_loss_fraction={thresholds['max_loss_fraction']!r} has no effect on the consolidator; nothing was "
                "made. Give it to each pass: consolidate(memory, max_loss_fraction=...)"
            )
        self._clock = clock
        self._thresholds = thresholds

    def consolidate(self, memory: Any, *, max_loss_fraction: float = 0.25) -> ConsolidationResult:
        """One whole pass over the memory; ``context`` says which run it was, and how to look at it and undo it.

        Raises:
            ValueError: the limit is not a real number in [0.0, 1.0]; the memory was not read.
            BadUsage: the memory is of a kind that memfold cannot change safely; it was not read.
            MemfoldError: the pass failed; what was committed before stands, and an undo takes it back.
        """
        _require_limit(max_loss_fraction)
        return self._consolidate(memory, max_loss_fraction, wait=None)

    def _consolidate(self, memory: Any, max_loss_fraction: float, *, wait: Wait | None) -> ConsolidationResult:
        store = _store_of(memory, wait)
        if store is None:
            return ConsolidationResult(retained_originals=0, reason="nothing was ever stored in this memory")
        from memfold_flows import pipeline, settings
        from memfold_flows.runs import RunDirectory, new_run_id, runs_folder

        now = self._clock()
        chosen = settings.load({**self._thresholds, "max_loss_fraction": float(max_loss_fraction)})
        policy = chosen.policy(as_of=now, traits=store.traits)
        run_id = new_run_id(now, secrets.token_bytes(3))
        run = RunDirectory.create(runs_folder(os.environ.get("MEMFOLD_HOME")) / run_id, run_id)
        seconds: dict[str, float] = {}
        receipt = pipeline.consolidate(
            store,
            run,
            policy,
            clock=self._clock,
            proposer=chosen.proposer,
            keep_snapshots=chosen.keep_snapshots,
            step=_timing(seconds),
        )
        found = {
            **_found(store, run),
            "thresholds_left_out": chosen.why_without_effect(store.traits),
            "step_seconds": seconds,
            "seconds": sum(seconds.values()),
        }
        return result_of(receipt, found)


class AsyncConsolidator:
    """The same for callers that await: the pass runs in a thread, and the event loop goes on.

    Where the memory has ``aget_all_memories``, that is awaited on the caller's loop.
    """

    def __init__(self, *, clock: Callable[[], datetime] = _utc_now, **thresholds: Any) -> None:
        self._consolidator = Consolidator(clock=clock, **thresholds)

    async def aconsolidate(self, memory: Any, *, max_loss_fraction: float = 0.25) -> ConsolidationResult:
        """One whole pass over the memory; see ``Consolidator.consolidate``."""
        _require_limit(max_loss_fraction)
        loop = asyncio.get_running_loop()

        def wait(awaitable: Awaitable[Any]) -> Any:
            return asyncio.run_coroutine_threadsafe(_awaited(awaitable), loop).result()

        return await asyncio.to_thread(self._consolidator._consolidate, memory, max_loss_fraction, wait=wait)


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _require_limit(max_loss_fraction: float) -> None:
    try:
        ConsolidationResult().exceeds_loss(max_loss_fraction)
    except OverflowError:
        raise ValueError("max_loss_fraction must be finite and within [0.0, 1.0]") from None


def _store_of(memory: Any, wait: Wait | None) -> MemoryStore | None:
    """A live memory as a store; None where it has no file yet, because nothing was ever stored.

    The kinds are told by what they have, so that PraisonAI itself need not be installed.
    """
    if all(hasattr(memory, name) for name in ("user_path", "_lock", "_load_all")):
        return _file_store(memory)
    if getattr(memory, "provider", None) == "sqlite" and hasattr(memory, "short_db") and hasattr(memory, "long_db"):
        return _sqlite_store(memory)
    from memfold_flows.stores.praisonai_live import LiveStore, find_calls

    return LiveStore(memory, find_calls(memory, wait=wait))


def _sqlite_store(memory: Any) -> MemoryStore | None:
    from memfold_flows.stores import praisonai
    from memfold_flows.stores.praisonai_files import TierNotUsed

    files = {"short_db": str(memory.short_db), "long_db": str(memory.long_db)}
    if ":memory:" in files.values():
        raise BadUsage("a Memory that lives in :memory: has no files that could be consolidated; it was not read")
    exist = [Path(file).exists() for file in files.values()]
    if not any(exist) and not all(Path(file).is_absolute() for file in files.values()):
        # PraisonAI opens them where it happens to work at that moment; this may be another folder than then.
        raise BadUsage(
            f"{memory.short_db} and {memory.long_db} are not in {Path.cwd()}; nothing was read or created. "
            "Give the Memory absolute paths, or work in the folder where it was first used"
        )
    if not any(exist):
        return None
    try:
        return praisonai.open_store(".", files)
    except TierNotUsed:
        # PraisonAI makes the file and the table of a tier when it first uses it; its own listing uses both.
        memory.get_all_memories()
        return praisonai.open_store(".", files)


def _file_store(memory: Any) -> MemoryStore | None:
    from memfold_flows.stores.praisonai_file import LiveFileStore

    folder = Path(memory.user_path).absolute()
    if not any((folder / name).exists() for name in ("short_term.json", "long_term.json")):
        return None
    return LiveFileStore(folder, lock=memory._lock, reload=memory._load_all)


def _timing(seconds: dict[str, float]) -> StepRunner:
    """A step runner that notes how long each step took, and waits where the store is busy."""
    from memfold_flows.retries import patiently

    def run(name: str, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Any:
        began = time.perf_counter()
        try:
            return patiently(name, function, *arguments, **options)
        finally:
            seconds[name] = time.perf_counter() - began

    return run


def _found(store: MemoryStore, run: RunDirectory) -> dict[str, Any]:
    """What the plan found beside its actions, by ids: words of memories do not belong in a log."""
    import pyarrow.compute as pc

    pairs = run.read("pairs", ["left_id", "right_id", "verdict", "held"])
    contradict = pc.is_in(pairs["verdict"], value_set=_strings("conflict", "supersedes"))
    conflicts = pairs.filter(pc.and_(contradict, pc.is_null(pairs["held"])))
    named = conflicts.slice(0, _CONFLICTS_NAMED).select(["left_id", "right_id"])
    return {
        "conflict_count": conflicts.num_rows,
        "conflicts": [list(pair.values()) for pair in named.to_pylist()],
        "left_alone": dict(getattr(store, "left_alone", {})),
    }


def _strings(*words: str) -> Any:
    import pyarrow as pa

    return pa.array(words, pa.string())


def result_of(receipt: Receipt, found: dict[str, Any]) -> ConsolidationResult:
    from memfold_flows.receipts import State

    totals = receipt.totals
    refused = {scope.scope: list(scope.refused) for scope in receipt.refused}
    lost = totals.lost_strict if receipt.limit.strict_entries else totals.lost
    counts = {
        "entries_before": totals.entries_before,
        "entries_after": totals.entries_after,
        "merged": totals.merged,
        "promoted": totals.promoted,
        "pruned": totals.pruned,
    }
    return ConsolidationResult(
        **counts,
        rejected=receipt.state is State.REJECTED,
        reason=_reason(receipt, refused),
        retained_originals=totals.entries_before - lost,
        # Users log it with extra=result.context, so no key may be one that a log record has itself.
        context={
            "run_id": receipt.run_id,
            "run_dir": receipt.run_dir,
            "store": receipt.store,
            "state": str(receipt.state),
            **counts,
            "expired": totals.expired,
            "held": totals.held,
            "waits": totals.waits,
            "lost": totals.lost,
            "lost_strict": totals.lost_strict,
            "loss_fraction": totals.loss_fraction,
            "loss_fraction_strict": totals.loss_fraction_strict,
            "longest_hold_seconds": receipt.longest_hold_seconds,
            "scopes": refused,
            "drifted": {each.memory_id: each.why for each in receipt.drifted},
            "metadata_conflicts": {each.memory_id: each.why for each in receipt.metadata_conflicts},
            "fields_left_out": list(receipt.fields_left_out),
            "new_ids": dict(receipt.new_ids),
            "proposer": receipt.proposer and receipt.proposer.as_json(),
            **found,
        },
    )


def _reason(receipt: Receipt, refused: dict[str, list[str]]) -> str | None:
    if refused:
        return "; ".join(f"{scope or '(no scope)'}: {', '.join(why)}" for scope, why in sorted(refused.items()))
    if receipt.drifted:
        changed = count(len(receipt.drifted), "memory was", "memories were")
        return f"{changed} changed while the pass was planned, and left alone"
    return None
