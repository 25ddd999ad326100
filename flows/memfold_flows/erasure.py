"""Erasure: a memory is taken out of its store and of wherever memfold put it, and nothing brings it back."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from memfold.errors import BadUsage, MemfoldError, PlanDamaged
from memfold_flows import history, retention, scrubbing
from memfold_flows.proposer import cache
from memfold_flows.receipts import ExitCode
from memfold_flows.runs import RunDirectory, known_runs
from memfold_flows.scrubbing import Left
from memfold_flows.stores import urls
from memfold_flows.stores.base import Ledger, MemoryStore, TellsEvents
from memfold_flows.stores.outcomes import Applied, Progress
from memfold_flows.stores.sessions import Clock, Session
from memfold_flows.streams import count


@dataclass(frozen=True, slots=True)
class Meant:
    """A memory to be forgotten. ``ids``: all that it was ever called; ``survivor``: another one that took it in."""

    id: str
    ids: tuple[str, ...]
    survivor: str | None


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What was erased, and what was not."""

    store: str
    memories: tuple[Meant, ...]
    removed: tuple[str, ...]
    replay_entries: int
    runs: tuple[str, ...]
    #: What memfold could not reach.
    left: tuple[Left, ...]
    #: Memories that stand and took a forgotten one in: they may say what it said.
    survivors: tuple[str, ...]

    @property
    def exit_code(self) -> ExitCode:
        """Whether anything may still tell of it."""
        return ExitCode.PARTLY if self.left or self.survivors else ExitCode.DONE

    def as_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {**asdict(self), "exit_code": int(self.exit_code)}


def look_up(store: MemoryStore, ids: Sequence[str], *, with_survivor: bool) -> list[Meant]:
    """What these ids mean: a memory under all of its names, and the one that took it in.

    Raises:
        BadUsage: the store knows nothing of an id.
    """
    with store.ledger() as ledger:
        moved = _promotions(ledger) if ledger else {}
        standing = _texts(store, ids)
        meant = [_meant(memory_id, ledger, moved, standing) for memory_id in ids]
        if with_survivor:
            survivors = [each.survivor for each in meant if each.survivor is not None]
            meant += [_meant(each, ledger, moved, {each: ""}) for each in survivors if each not in ids]
    return meant


def forget(
    store: MemoryStore,
    meant: Sequence[Meant],
    *,
    runs_folder: Path,
    clock: Clock,
    monotonic: Callable[[], float],
    new_key: bytes,
) -> Forgotten:
    """Erase these memories: a tombstone first, then the store, its replay and events, and each run directory.

    May be repeated, and after a crash should be: what was erased stays so, what was not is.

    Raises:
        Transient: another memfold is at work on this store, or agents keep it locked.
    """
    ids = {each for memory in meant for each in memory.ids}
    runs, missing = _runs(store, runs_folder)
    texts = _texts(store, ids)
    said: dict[str, set[str]] = {each: {texts[each]} if each in texts else {""} for each in ids}
    for run in runs:
        for memory_id, contents in _texts_in(run, ids).items():
            said[memory_id] |= contents
    says_it = _says_one_of({text for contents in said.values() for text in contents if text})
    session = Session(store, "forget", clock=clock, monotonic=monotonic)
    with session.transaction(is_last=False) as (transaction, now):
        transaction.ledger.bury(said, now, new_key=new_key)
    with session.transaction(is_last=True) as (transaction, now):
        removed = sorted(transaction.read(ids))
        transaction.delete(set(removed))
        transaction.ledger.forget_decisions(ids)
        entries = transaction.ledger.forget_replay(lambda entry: says_it(_content_of(entry)))
        told = transaction.forget_events(ids) if isinstance(transaction, TellsEvents) else 0
    left = [*_without_answers(runs_folder.parent), *missing]
    left += [each for run in runs for each in scrubbing.scrub(run, ids, says_it, now)]
    named = {each.place for each in left}
    left += [each for each in _of_no_store(runs_folder, ids, says_it, now) if each.place not in named]
    if told:
        left.append(Left(store.url, f"{count(told, 'event', 'events')} that its own program wrote may tell of it"))
    survivors = sorted({each.survivor for each in meant if each.survivor is not None} - ids)
    return Forgotten(
        store=store.url,
        memories=tuple(meant),
        removed=tuple(removed),
        replay_entries=entries,
        runs=tuple(run.run_id for run in runs),
        left=tuple(left),
        survivors=tuple(survivors),
    )


def _promotions(ledger: Ledger) -> dict[str, str]:
    """Every id that a promotion changed -> the id that the memory had then."""
    moved: dict[str, str] = {}
    for record in reversed(ledger.runs()):
        outcomes = Progress(Applied, ledger.landed(record.run_id, "apply")).outcomes
        for outcome in (each for of_scope in outcomes.values() for each in of_scope):
            moved |= outcome.new_ids
    return moved


def _meant(memory_id: str, ledger: Ledger | None, moved: Mapping[str, str], standing: Mapping[str, str]) -> Meant:
    names = [memory_id, *(old for old, new in moved.items() if new == memory_id)]
    while (new := moved.get(names[-1])) is not None and new not in names and memory_id not in standing:
        names.append(new)
    end = ledger.resolve(names[-1]) if ledger else names[-1]
    survivor = end if end not in names and memory_id not in standing else None
    is_known = memory_id in standing or len(names) > 1 or survivor is not None
    if not is_known and not (ledger and _was_buried(ledger, memory_id)):
        raise BadUsage(
            f"the store has no memory {memory_id!r}, and none ever became another one under that id; "
            "nothing was forgotten. memfold export lists the ids of a run"
        )
    return Meant(memory_id, tuple(dict.fromkeys(names)), survivor)


def _was_buried(ledger: Ledger, memory_id: str) -> bool:
    from datetime import UTC

    return ledger.tombstones().forgot_since(memory_id, datetime.min.replace(tzinfo=UTC))


def _texts(store: MemoryStore, ids: Collection[str]) -> dict[str, str]:
    """The texts of those of these memories that stand."""
    wanted = pa.array(sorted(ids), pa.string())
    found: dict[str, str] = {}
    for batch in store.snapshot():
        rows = batch.select(["memory_id", "content"]).filter(pc.is_in(batch.column("memory_id"), value_set=wanted))
        found |= {row["memory_id"]: row["content"] for row in rows.to_pylist()}
    return found


def _runs(store: MemoryStore, runs_folder: Path) -> tuple[list[RunDirectory], list[Left]]:
    """The run directories of a store that can be reached, and those that cannot."""
    url = urls.without_flags(store.url)
    found = {run.path: run for run in known_runs(runs_folder) if urls.without_flags(run.manifest.store) == url}
    left: list[Left] = []
    for past in history.runs_of(store):
        path = Path(past.directory).resolve()
        try:
            run = found.get(path) or RunDirectory.open(path)
        except (PlanDamaged, OSError) as error:
            if path.is_dir():
                left.append(_unreadable(path, error))
            else:
                left.append(Left(past.directory, "the run directory is gone; delete it where it lies now"))
            continue
        if past.is_in_the_middle:
            found.pop(path, None)
            step = "undo" if past.state is history.RunState.IN_UNDO else "apply"
            left.append(Left(past.directory, f"its {step} has not ended: end it, then forget again"))
        else:
            found[path] = run
    return [found[path] for path in sorted(found)], left


def _texts_in(run: RunDirectory, ids: Collection[str]) -> dict[str, set[str]]:
    try:
        return scrubbing.texts_of(run, ids)
    except (MemfoldError, OSError, KeyError, ValueError, pa.ArrowException):
        return {}  # the scrubbing of this run says what is wrong with it


def _of_no_store(runs_folder: Path, ids: Collection[str], says_it: Callable[[str], bool], now: datetime) -> list[Left]:
    """Clear the plans that were cut short; returns the directories that tell of no store, and so may be of this one."""
    left: list[Left] = []
    try:
        retention.remove(retention.cut_short(runs_folder, now), now=now)
        folders = sorted(path for path in runs_folder.iterdir() if path.is_dir()) if runs_folder.is_dir() else []
    except OSError as error:
        return [Left(str(runs_folder), f"cannot be gone through ({error})")]
    for path in folders:
        try:
            RunDirectory.open(path)
        except (PlanDamaged, OSError) as error:
            if retention.is_half_made(path):
                if scrubbing.may_tell_of(path, ids, says_it):
                    left.append(
                        Left(str(path), f"a plan that may be at work; if it is not, {scrubbing.how_to_clear(path)}")
                    )
            elif any(path.iterdir()):
                left.append(_unreadable(path, error))
    return left


def _unreadable(path: Path, error: PlanDamaged | OSError) -> Left:
    why = scrubbing.what_of(error) if isinstance(error, PlanDamaged) else str(error)
    return Left(str(path), f"is damaged, and may be of any store: {why}; {scrubbing.how_to_clear(path)}")


def _without_answers(home: Path) -> list[Left]:
    """Drop what models answered."""
    try:
        cache.clear(home)
    except OSError as error:
        return [Left(str(cache.folder_of(home)), f"the answers of models cannot be removed ({error})")]
    return []


def _says_one_of(texts: Iterable[str]) -> Callable[[str], bool]:
    """Whether a text is one of these, but for case, spacing, punctuation and Unicode form."""
    keys = {_key(text) for text in texts}
    return lambda text: _key(text) in keys


def _key(text: str) -> str:
    return re.sub(r"[\W_]+", " ", unicodedata.normalize("NFKC", text).casefold()).strip() or text


def _content_of(entry: Mapping[str, Any]) -> str:
    content = entry.get("content")
    return content if isinstance(content, str) else ""
