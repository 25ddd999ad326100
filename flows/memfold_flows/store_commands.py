"""`memfold init` and `memfold stores`: a new store, and the kinds of stores that there are."""

from __future__ import annotations

from collections.abc import Sequence

from memfold.errors import BadUsage
from memfold_flows import stores
from memfold_flows.runs import known_runs
from memfold_flows.stores import urls
from memfold_flows.terminal import print_json, runs_home, say


def init(url: str, *, as_json: bool) -> None:
    """Make a new, empty store."""
    parts = urls.parse(url)
    if parts.scheme == "postgresql":
        _init_postgresql(parts, as_json=as_json)
        return
    from memfold_flows.stores import sqlite

    if parts.scheme != "sqlite":
        raise BadUsage(_why_not_made(parts.scheme))
    if parts.options:
        raise BadUsage("init makes memfold's own table; a table of your own needs none. Nothing was made.")
    path = urls.local_path(parts.path)
    is_new = sqlite.init(path)
    if as_json:
        print_json({"store": urls.format_url("sqlite", path), "created": is_new})
    else:
        say(f"made an empty store in {path}" if is_new else f"{path} is a store already; it stays as it is")


def _why_not_made(scheme: str) -> str:
    if scheme not in stores.KINDS:
        return f"no store is called {scheme!r}; init makes sqlite: and postgresql: stores. Nothing was made."
    archive = "an archive is a file of yours"
    who = archive if scheme in ("jsonl", "parquet") else "the program that writes it makes it when it first runs"
    return f"init makes sqlite: and postgresql: stores, not {scheme}: ({who}); nothing was made"


def _init_postgresql(parts: urls.StoreUrl, *, as_json: bool) -> None:
    from memfold_flows.stores import postgresql

    url, is_new = postgresql.init(parts.path, parts.options)
    if as_json:
        print_json({"store": url, "created": is_new})
    else:
        say(f"made what was missing of {url}" if is_new else f"{url} is a store already; it stays as it is")


def list_stores(*, as_json: bool) -> None:
    """The kinds of stores that memfold opens, and the stores that have runs."""
    kinds = list(stores.KINDS.values())
    known: dict[str, list[str]] = {}
    for each in known_runs(runs_home()):
        known.setdefault(each.manifest.store, []).append(each.run_id)
    if as_json:
        described = [
            {
                "scheme": kind.scheme,
                "summary": kind.summary,
                "example": kind.example,
                "options": dict(kind.url_options()),
            }
            for kind in kinds
        ]
        print_json({"kinds": described, "stores": [{"store": url, "runs": runs} for url, runs in known.items()]})
        return
    from memfold_flows import console

    console.table(("store", "what it is"), [(kind.example, kind.summary) for kind in kinds])
    console.say("\nOptions, as in sqlite:notes.db?table=notes:")
    console.table(("store", "options", "what they mean"), _options_in_brief(kinds))
    if known:
        console.say("")
        console.table(
            ("stores with runs", "runs", "latest"),
            [(url, str(len(ids)), ids[-1]) for url, ids in known.items()],
            whole=("latest",),
        )


def _options_in_brief(kinds: Sequence[stores.StoreKind]) -> list[tuple[str, str, str]]:
    """The options of all kinds of stores, those together that mean the same."""
    schemes: dict[tuple[str, str], list[str]] = {}
    for kind in kinds:
        for option in kind.url_options().items():
            schemes.setdefault(option, []).append(kind.scheme)
    names: dict[tuple[str, str], list[str]] = {}
    for (name, meaning), known in schemes.items():
        shown = meaning.replace(f"the column of {name}", "the column of that name")
        names.setdefault((", ".join(known), shown), []).append(name)
    return [(known, ", ".join(together), meaning) for (known, meaning), together in names.items()]
