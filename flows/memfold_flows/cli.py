"""The command line: thin over the library. Heavy parts are imported by the command that needs them."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer

from memfold.errors import ApplyInterrupted, BadUsage, MemfoldError
from memfold_flows.command_examples import EXAMPLES
from memfold_flows.flags import with_threshold_flags
from memfold_flows.options import (
    AsJson,
    AsOf,
    ExplainModel,
    IfDue,
    InPlace,
    OfStore,
    OneScope,
    Out,
    Quiet,
    Run,
    RunDir,
    Scopes,
    SkipBad,
    Store,
    StoreOrSet,
    Yes,
)
from memfold_flows.streams import LONGEST_LINE, heard_or_not, in_short

CommandFunction = TypeVar("CommandFunction", bound=Callable[..., Any])

app = typer.Typer(
    name="memfold",
    help="The night shift for AI-agent memory: folds copies and rewordings, loses nothing, can be undone.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _command(name: str) -> Callable[[CommandFunction], CommandFunction]:
    """A command whose help ends with an example."""
    return app.command(name=name, epilog=f"Example: {EXAMPLES[name]}")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The ``memfold`` program: runs one command and exits with its code."""
    from memfold_flows.receipts import ExitCode

    sys.stdout = heard_or_not(sys.stdout)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a letter must not end a pass
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        _require_text(words)
        code = app(args=words, prog_name="memfold", standalone_mode=True)
    except BadUsage as error:
        code = _fail(error, ExitCode.BAD_USAGE)
    except ApplyInterrupted as error:
        code = _fail(error, ExitCode.PARTLY)
    except MemfoldError as error:
        code = _fail(error, ExitCode.FAILED)
    except OSError as error:
        code = _fail(error, ExitCode.FAILED)
    sys.exit(code)


@_command("init")
def init(store: Store, as_json: AsJson = False) -> None:
    """Make a new, empty store: sqlite:FILE or postgresql://USER@HOST/DB.

    jsonl: and parquet: archives, praisonai:, praisonai-file: and evo: stores are made by the programs that write them.
    """
    from memfold_flows import store_commands

    store_commands.init(store, as_json=as_json)


@_command("plan")
@with_threshold_flags
def plan(
    store: StoreOrSet = None,
    *,
    scope: Scopes = None,
    as_of: AsOf = None,
    run_dir: RunDir = None,
    skip_bad: SkipBad = False,
    explain_model: ExplainModel = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    flags: dict[str, Any],
) -> None:
    """Plan a pass and show it; writes nothing to the store."""
    from memfold_flows import commands
    from memfold_flows.settings import store_of

    commands.plan(
        store_of(store),
        scopes=scope,
        as_of=as_of,
        run_dir=run_dir,
        skip_bad=skip_bad,
        as_json=as_json,
        flags=flags,
        explains_model=explain_model,
        quiet=quiet,
    )


@_command("show")
def show(
    run: Run,
    store: OfStore = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write it as one page for a browser instead.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a run: the plan, the gate, what was written."""
    from memfold_flows import showing

    if html is not None:
        showing.write_page(run, store=store, html=html, as_json=as_json)
        return
    showing.show(run, store=store, as_json=as_json)


@_command("export")
def export(
    run: Run,
    *,
    store: OfStore = None,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="As CSV, with a column to decide in (see: memfold edit).")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the plan as JSONL, one line per memory: id, scope, action, into, reason (with or without --json)."""
    from memfold_flows import showing

    showing.export(run, store=store, as_csv=as_csv)


@_command("edit")
def edit(
    run: Run,
    *,
    reject: Annotated[
        list[str] | None,
        typer.Option("--reject", metavar="ID", help="It stays; of a survivor: nothing merges into it."),
    ] = None,
    pin: Annotated[list[str] | None, typer.Option("--pin", metavar="ID", help="It stays anyway.")] = None,
    prune: Annotated[list[str] | None, typer.Option("--prune", metavar="ID", help="It goes; counted as lost.")] = None,
    source: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="A changed export of this plan, .csv or .jsonl.")
    ] = None,
    store: OfStore = None,
    as_json: AsJson = False,
) -> None:
    """Change a plan: reject, pin or prune memories. The gate judges it again; the result is a new run to apply."""
    from memfold_flows import editing

    editing.edit(
        run, store=store, reject=reject or (), pin=pin or (), prune=prune or (), source=source, as_json=as_json
    )


@_command("apply")
def apply(
    run: Run,
    *,
    store: OfStore = None,
    out: Out = None,
    in_place: InPlace = False,
    yes: Yes = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write exactly the plan of a run."""
    from memfold_flows import commands

    commands.apply(run, store=store, out=out, in_place=in_place, yes=yes, as_json=as_json, quiet=quiet)


@_command("run")
@with_threshold_flags
def run(
    store: StoreOrSet = None,
    *,
    scope: Scopes = None,
    as_of: AsOf = None,
    run_dir: RunDir = None,
    out: Out = None,
    in_place: InPlace = False,
    skip_bad: SkipBad = False,
    if_due: IfDue = False,
    yes: Yes = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    flags: dict[str, Any],
) -> None:
    """Plan, gate and apply in one go; asks first on a terminal."""
    from memfold_flows import commands
    from memfold_flows.settings import store_of

    commands.run(
        store_of(store),
        scopes=scope,
        as_of=as_of,
        run_dir=run_dir,
        out=out,
        in_place=in_place,
        skip_bad=skip_bad,
        if_due=if_due,
        yes=yes,
        as_json=as_json,
        flags=flags,
        quiet=quiet,
    )


@_command("status")
def status(store: StoreOrSet = None, as_json: AsJson = False) -> None:
    """Say how each scope of a store stands: due or not and why, its last pass, what waits for review."""
    from memfold_flows import standing
    from memfold_flows.settings import store_of

    standing.show(store_of(store), as_json=as_json)


@_command("check")
def check(store: StoreOrSet = None, scope: OneScope = "", as_json: AsJson = False) -> None:
    """Say whether a scope is due for a pass, and why; exits 0 if it is and 5 if not. Quick, for an agent's hooks."""
    from memfold_flows import checking
    from memfold_flows.receipts import ExitCode
    from memfold_flows.settings import store_of

    due = checking.check(store_of(store), scope, as_json=as_json)
    raise typer.Exit(ExitCode.DONE if due.should_consolidate else ExitCode.NOT_DUE)


@_command("hints")
def hints(store: StoreOrSet = None, scope: OneScope = "", as_json: AsJson = False) -> None:
    """Name the pairs of memories of a scope that share most of their words, by title. Judges nothing."""
    from memfold_flows import checking
    from memfold_flows.settings import store_of

    checking.show_hints(store_of(store), scope, as_json=as_json)


@_command("undo")
def undo(
    run: Run,
    *,
    store: OfStore = None,
    scope: Annotated[str | None, typer.Option("--scope", metavar="S", help="Only what it did to this scope.")] = None,
    memory_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Only what it did to this memory.")
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Take back what a run wrote: all of it, one scope, or one merge."""
    from memfold_flows import commands

    commands.undo(run, store=store, scope=scope, memory_id=memory_id, yes=yes, as_json=as_json)


@_command("forget")
def forget(
    store: Store,
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of memories, old or new.")],
    *,
    with_survivor: Annotated[
        bool, typer.Option("--with-survivor", help="Also erase the memory that took one of them in.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Erase memories for good: from the store, its replay batches, and every run that memfold can reach."""
    from memfold_flows import forgetting

    forgetting.forget(store, ids, with_survivor=with_survivor, yes=yes, as_json=as_json)


@_command("history")
def history(store: StoreOrSet = None, as_json: AsJson = False) -> None:
    """List the runs that wrote to a store, newest first, and how far each has come."""
    from memfold_flows import upkeep
    from memfold_flows.settings import store_of

    upkeep.show_history(store_of(store), as_json=as_json)


@_command("resolve")
def resolve(
    store: Store,
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of memories, old or new.")],
    as_json: AsJson = False,
) -> None:
    """Say which memory an old id leads to now, through all merges and promotions."""
    from memfold_flows import upkeep

    upkeep.resolve(store, ids, as_json=as_json)


@_command("prune-runs")
def prune_runs(
    *,
    store: OfStore = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go; remove nothing.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove the undo and snapshot data of runs not used for keep_undo_days (90)."""
    from memfold_flows import upkeep

    upkeep.prune_runs(url=store, dry_run=dry_run, yes=yes, as_json=as_json)


@_command("stores")
def list_stores(as_json: AsJson = False) -> None:
    """List the kinds of stores and their options, and the stores that have runs."""
    from memfold_flows import store_commands

    store_commands.list_stores(as_json=as_json)


@_command("judge")
def judge(
    pairs: Annotated[
        Path, typer.Argument(metavar="PAIRS.jsonl", help='Lines of {"pair_id", "a": {"text"}, "b": {"text"}}.')
    ],
    *,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE.csv", help="Write the verdicts here.")] = None,
    as_json: AsJson = False,
) -> None:
    """Judge pairs of your own, and see how right the verdicts are where you labelled them."""
    from memfold_flows import text_commands

    text_commands.judge(pairs, out=out, as_json=as_json)


@_command("cluster")
def cluster(
    source: Annotated[Path, typer.Argument(metavar="IN.parquet", help="Columns id and text, one row per text.")],
    target: Annotated[Path, typer.Argument(metavar="OUT.parquet", help="Columns id and cluster.")],
    *,
    threshold: Annotated[
        float, typer.Option("--threshold", help="Word Jaccard from which two texts are linked.")
    ] = 0.7,
    scope: Annotated[str | None, typer.Option("--scope", metavar="COLUMN", help="Link only within its values.")] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Group near-duplicate texts of a Parquet file by the words they share; judges nothing, removes nothing."""
    from memfold_flows import text_commands

    text_commands.cluster(source, target, threshold=threshold, scope=scope, quiet=quiet, as_json=as_json)


@_command("backfill")
@with_threshold_flags
def backfill(
    archive: Annotated[str, typer.Argument(metavar="ARCHIVE", help="jsonl: or parquet:, a file or a folder of them.")],
    *,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="A folder for the new archive and the report.")],
    shards: Annotated[int, typer.Option("--shards", min=1, max=512, help="How many parts to work in.")] = 16,
    as_of: AsOf = None,
    workers: Annotated[int, typer.Option("--workers", min=1, max=256, help="Parts worked on at a time.")] = 2,
    dask: Annotated[
        str | None, typer.Option("--dask", metavar="ADDRESS", help="On this Dask cluster; or local.")
    ] = None,
    ray: Annotated[str | None, typer.Option("--ray", metavar="ADDRESS", help="On this Ray cluster; or local.")] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    flags: dict[str, Any],
) -> None:
    """Consolidate a large archive into a new one, shard by shard; goes on where it stopped."""
    from memfold_flows import serving

    serving.backfill(
        archive,
        out=out,
        shards=shards,
        as_of=as_of,
        workers=workers,
        dask=dask,
        ray=ray,
        as_json=as_json,
        flags=flags,
        quiet=quiet,
    )


@_command("serve")
def serve(
    store: Store,
    *,
    cron: Annotated[
        str | None, typer.Option("--cron", metavar="C", help="When to look at all scopes (0 3 * * *).")
    ] = None,
    timezone: Annotated[str, typer.Option("--timezone", metavar="TZ", help="The time zone of the schedule.")] = "UTC",
) -> None:
    """Keep the nightly flow running against a Prefect server, without a worker."""
    from memfold_flows import serving

    serving.serve(store, cron=cron, timezone=timezone)


@_command("config")
@with_threshold_flags
def config(
    *,
    as_schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of memfold.yaml, for editors.")
    ] = False,
    as_json: AsJson = False,
    flags: dict[str, Any],
) -> None:
    """Show each setting with its value and where it comes from: flag, environment, file and line, preset or default."""
    from memfold_flows import configuration

    if as_schema:
        configuration.show_schema()
    else:
        configuration.show(flags, as_json=as_json)


@_command("demo")
def demo(as_json: AsJson = False) -> None:
    """Run a whole pass over a copy of the sample store, in ./demo."""
    from memfold_flows import demo as sample

    sample.run(as_json=as_json)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    """The night shift for AI-agent memory: folds copies and rewordings, loses nothing, can be undone."""
    if version:
        from importlib.metadata import version as version_of

        print(f"memfold {version_of('memfold')}")
        raise typer.Exit


def _require_text(words: Sequence[str]) -> None:
    """Refuse bytes that are no text: neither a store nor an id can be called so."""
    for word in words:
        if any("\ud800" <= character <= "\udfff" for character in word):
            raise BadUsage(f"{word!r} is not valid UTF-8; nothing was read or written")


def _fail(error: BaseException, code: int) -> int:
    print(f"memfold: {in_short(str(error), LONGEST_LINE)}", file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
