"""The rows of the fault matrix: at which step which fault strikes, and how a store is found and brought to its end."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from . import points
from .conftest import Databases, Ended, Struck
from .points import Moment

KILLED = -9
#: A store for which a row says nothing.
NOT_THERE = "–"


@dataclass(frozen=True)
class Row:
    """One row: what happens at which step, and a function that lets it happen; None where a store has no such step."""

    step: str
    fault: str
    strike: Callable[[Struck], Ended | None]
    #: What a person does then, once the cause is gone.
    then: str
    #: Part of ``make test``; the others are in ``make test-long``.
    is_quick: bool = False

    @property
    def name(self) -> str:
        return f"{self.step}: {self.fault}"

    def outcome(self, struck: Struck) -> str:
        """What the store holds after the fault; then the run must come to its end, and an undo bring all of it back."""
        ended = self.strike(struck)
        if ended is None:
            return NOT_THERE
        state = struck.state()
        assert "Traceback" not in ended.said, ended.said
        if ended.code != KILLED:
            assert ended.code in (1, 2, 4), (ended.code, ended.said)
            assert "memfold: " in ended.said, ended.said
        self._bring_to_the_end(struck)
        return state

    def _bring_to_the_end(self, struck: Struck) -> None:
        if self.then != "memfold undo":
            again = struck.plan_and_apply() if self.then == "memfold run" else struck.apply()
            assert again.code == 0, again.said
            assert struck.state() == "new"
            assert {run["state"] for run in struck.history()} == {"Applied"}
        for run in struck.history():
            undone = struck.undo(run["run_id"])
            assert undone.code == 0, undone.said
        assert struck.filled.everything() == struck.untouched
        assert {run["state"] for run in struck.history()} == {"Undone"}


def _killed(moment: Moment, *, is_quick: bool = False) -> Row:
    def strike(struck: Struck) -> Ended | None:
        if moment.command == "run":
            struck.back_to("fresh")
            ended = struck.plan_and_apply(at=moment.at, fault="kill")
        elif moment.command == "apply":
            struck.back_to("planned")
            ended = struck.apply(at=moment.at, fault="kill")
        else:
            struck.back_to("applied")
            ended = struck.undo(at=moment.at, fault="kill")
        assert ended.code == KILLED, ended.said
        return ended

    return Row(moment.says, "SIGKILL", strike, f"memfold {moment.command}", is_quick)


def _killed_while_landing(number: int) -> Row:
    moments = points.landing("jsonl")

    def strike(struck: Struck) -> Ended | None:
        moment = dict(enumerate(points.landing(struck.scheme))).get(number)
        return None if moment is None else _killed(moment).strike(struck)

    return Row(moments[number].says, "SIGKILL", strike, "memfold apply", is_quick=True)


def _power_cut(moment: Moment, *, is_quick: bool = False) -> Row:
    """The power goes twice: names that were not synced are lost, then what those files held that were not."""

    def strike(struck: Struck) -> Ended | None:
        if moment.says in _LANDING_SAYS and struck.scheme not in points.LANDINGS:
            return None
        at = _landing_of(struck, moment)
        states = []
        for loses in ("names", "contents"):
            struck.back_to({"run": "fresh", "apply": "planned", "undo": "applied"}[at.command])
            command = {"run": struck.plan_and_apply, "apply": struck.apply, "undo": struck.undo}[at.command]
            ended = command(at=at.at, fault="power cut", loses_power=loses)
            assert ended.code == KILLED, ended.said
            states.append(struck.state())
            if loses == "names":
                row._bring_to_the_end(struck)
        assert states[0] == states[1]
        return ended

    row = Row(moment.says, "power cut", strike, f"memfold {moment.command}", is_quick)
    return row


_LANDING_SAYS = [moment.says for moment in points.landing("jsonl")]


def _landing_of(struck: Struck, moment: Moment) -> Moment:
    """The moment as this store has it."""
    return next((each for each in points.landing(struck.scheme) if each.says == moment.says), moment)


def _at(moment: Moment, fault: str, *, is_quick: bool = False, then: str | None = None, **options: Any) -> Row:
    def strike(struck: Struck) -> Ended | None:
        struck.back_to({"run": "fresh", "apply": "planned", "undo": "applied"}[moment.command])
        command = {"run": struck.plan_and_apply, "apply": struck.apply, "undo": struck.undo}[moment.command]
        more = {name: find(struck) for name, find in options.items()}
        if None in more.values():
            return None
        ended = command(at=moment.at, fault=fault, **more)
        _repair(struck)
        return ended

    return Row(moment.says, fault, strike, then or f"memfold {moment.command}", is_quick)


def _repair(struck: Struck) -> None:
    """The store is there again, and may be written."""
    away = struck.folder / "away"
    if isinstance(struck.at, Databases):
        struck.at.execute(*_rename(f"{struck.at.name} away", struck.at.name))
    elif away.exists():
        away.rename(struck.store_folder)
    for path in (struck.world, *struck.world.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)


def _rename(name: str, to: str) -> list[str]:
    """Statements that give a database another name, if it is there, whoever is connected to it."""
    return [
        f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}'",
        f"do $$ begin if exists (select from pg_database where datname = '{name}') "
        f'then execute \'alter database "{name}" rename to "{to}"\'; end if; end $$',
    ]


def _locked_by_an_agent(struck: Struck) -> Ended | None:
    struck.back_to("planned")
    if isinstance(struck.at, Databases):
        import psycopg

        with psycopg.connect(struck.at.place) as agent:
            agent.execute("select * from memories for update")
            return struck.apply(busy_seconds=0.2)
    files = sorted(struck.store_folder.glob("*.db"))
    if not files:
        return None
    with ExitStack() as stack:
        for file in files:
            agent = stack.enter_context(closing(sqlite3.connect(file, isolation_level=None)))
            agent.execute("begin immediate")
        return struck.apply(busy_seconds=0.2)


def _locked_by_another_memfold(struck: Struck) -> Ended | None:
    struck.back_to("planned")
    with struck.filled.open().transaction():
        return struck.apply(busy_seconds=0.2)


def _leased_by_another_memfold(struck: Struck) -> Ended | None:
    struck.back_to("planned")
    store = struck.filled.open()
    if store.traits.rows_per_transaction is None:
        return None
    now = datetime.now(UTC)
    with store.transaction() as transaction:
        fence = transaction.ledger.take_lease("another-night", now, now + timedelta(minutes=2))
    ended = struck.apply()
    with store.transaction() as transaction:
        transaction.ledger.release_lease("another-night", fence)
    store.close()
    return ended


def _damaged(kind: str) -> Callable[[Struck], Ended]:
    """Each file that an apply reads is damaged in its turn, and none of them is trusted."""

    def strike(struck: Struck) -> Ended:
        struck.back_to("planned")
        files = [path for path in sorted(struck.run_dir.rglob("*")) if path.suffix in (".parquet", ".json")]
        for file in files:
            with _damage(file, kind):
                ended = struck.apply()
            assert ended.code in (1, 2), (file.name, ended)
            assert "nothing was written" in ended.said or "no run" in ended.said, (file.name, ended.said)
            assert struck.state() == "old", file.name
        return ended

    return strike


def _damaged_undo(kind: str) -> Callable[[Struck], Ended]:
    def strike(struck: Struck) -> Ended:
        struck.back_to("applied")
        [file] = sorted((struck.run_dir / "undo").iterdir())
        with _other_rows(file) if kind == "altered" else _damage(file, kind):
            return struck.undo()

    return strike


@contextmanager
def _damage(file: Path, kind: str) -> Iterator[None]:
    content = file.read_bytes()
    if kind == "cut short":
        file.write_bytes(content[: len(content) // 2])
    elif kind == "gone":
        file.unlink()
    else:
        middle = len(content) // 2
        file.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    yield
    file.write_bytes(content)


@contextmanager
def _other_rows(file: Path) -> Iterator[None]:
    """A file that is whole, but gives each memory back as another one."""
    content, rows = file.read_bytes(), pq.read_table(file)
    raws = rows["raw"].to_pylist()
    place = rows.column_names.index("raw")
    pq.write_table(rows.set_column(place, rows.schema.field("raw"), [[*raws[1:], raws[0]]]), file)
    yield
    file.write_bytes(content)


def _run_of_another_version(struck: Struck) -> Ended:
    struck.back_to("planned")
    manifest = struck.run_dir / "manifest.json"
    content = manifest.read_text()
    manifest.write_text(content.replace("memfold-run/1", "memfold-run/2"))
    ended = struck.apply()
    manifest.write_text(content)
    return ended


def _ledger_of_another_version(struck: Struck) -> Ended:
    struck.back_to("planned")
    store = struck.filled.open()
    known = _set_version(store, "99")
    ended = struck.apply()
    struck.back_to("planned")
    store.close()
    assert known
    return ended


def _set_version(store: Any, version: str) -> bool:
    with store.transaction() as transaction:
        tables = transaction.ledger._tables
        return bool(tables.write(f"update {tables.prefix}meta set value = ? where name = 'schema_version'", (version,)))


def _store_folder(struck: Struck) -> str | None:
    return None if isinstance(struck.at, Databases) else str(struck.store_folder)


def _run_dir(struck: Struck) -> str:
    return str(struck.run_dir)


def _away(struck: Struck) -> Any:
    """How the store goes: a folder gets another name, or a database."""
    if isinstance(struck.at, Databases):
        return [struck.at.server_url, *_rename(struck.at.name, f"{struck.at.name} away")]
    return str(struck.folder / "away")


_DAMAGE = ("cut short", "gone", "altered")
_PLANNED = replace(points.REWRITTEN, says="plan read", event="call", function="memfold_flows.steps:rewrite")

ROWS: tuple[Row, ...] = (
    *(_killed(moment) for moment in points.PLANNING),
    *(_killed(each, is_quick=each in (points.UNDO_DURABLE, points.COMMITTED)) for each in points.APPLYING[:4]),
    _killed_while_landing(0),
    _killed_while_landing(1),
    *(_killed(each, is_quick=each in (points.UNDO_DURABLE, points.COMMITTED)) for each in points.APPLYING[4:]),
    *(_killed(moment) for moment in points.UNDOING),
    _power_cut(points.UNDO_DURABLE, is_quick=True),
    *(_power_cut(moment) for moment in points.landing("jsonl")),
    _power_cut(points.COMMITTED),
    _power_cut(replace(points.COMMITTED, says="committed, of a plan made just now", command="run"), is_quick=True),
    _power_cut(points.RECEIPT),
    _power_cut(points.ENDED),
    *(_power_cut(moment) for moment in points.UNDOING),
    _at(points.PLANNING[0], "disk full"),
    _at(points.ROWS_WRITTEN, "disk full", is_quick=True),
    _at(points.UNDO_DURABLE, "disk full"),
    _at(points.COMMITTED, "disk full"),
    _at(points.UNDONE_UNCOMMITTED, "disk full"),
    _at(_PLANNED, "store folder read-only", read_only=_store_folder, is_quick=True),
    _at(_PLANNED, "run directory read-only", read_only=_run_dir),
    Row("plan read", "store locked by an agent", _locked_by_an_agent, "memfold apply", is_quick=True),
    Row("plan read", "store locked by another memfold", _locked_by_another_memfold, "memfold apply"),
    Row("plan read", "lease held by another run", _leased_by_another_memfold, "memfold apply"),
    _at(points.PLANNING[0], "store vanishes", away=_away),
    _at(_PLANNED, "store vanishes", away=_away, is_quick=True),
    *(Row("plan read", f"a file of the run is {kind}", _damaged(kind), "memfold apply") for kind in _DAMAGE),
    *(Row("undo data read", f"it is {kind}", _damaged_undo(kind), "memfold undo") for kind in _DAMAGE),
    Row("plan read", "run of another version", _run_of_another_version, "memfold apply"),
    Row("plan read", "ledger of a newer memfold", _ledger_of_another_version, "memfold apply"),
)
