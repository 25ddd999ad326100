"""A store is a URL: what it may look like, and what is said where it is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from memfold.errors import BadUsage
from memfold_flows.stores import KINDS, open_store, urls
from memfold_flows.stores.urls import StoreUrl


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("sqlite:memories.db", StoreUrl("sqlite", "memories.db")),
        ("sqlite:///var/memories.db", StoreUrl("sqlite", "/var/memories.db")),
        ("sqlite:/var/memories.db", StoreUrl("sqlite", "/var/memories.db")),
        ("SQLite:a b.db", StoreUrl("sqlite", "a b.db")),
        ("jsonl:what%3F.jsonl?scope=user_id%26x", StoreUrl("jsonl", "what?.jsonl", {"scope": "user_id&x"})),
        ("jsonl:100%.jsonl", StoreUrl("jsonl", "100%.jsonl")),
        ("jsonl:a#b:c.jsonl?x=1&y=", StoreUrl("jsonl", "a#b:c.jsonl", {"x": "1", "y": ""})),
    ],
)
def test_a_url_is_a_scheme_a_path_and_options(url, parts):
    """Relative paths are relative to the current folder; special characters may be quoted."""
    assert urls.parse(url) == parts


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("memories.db", "names no scheme; write it as scheme:path, for example sqlite:memories.db"),
        ("", "names no scheme"),
        ("export.jsonl", "for example jsonl:export.jsonl"),
        ("jsonl:x?scope", "has an option without a value"),
        ("jsonl:x?a=1&a=2", "sets option 'a' twice"),
    ],
)
def test_a_url_that_cannot_be_read_is_bad_usage(url, what):
    """The message shows how to write it."""
    with pytest.raises(BadUsage, match=what.replace("?", r"\?")):
        open_store(url)


def test_what_stands_before_a_host_is_not_shown():
    """It may be a password."""
    with pytest.raises(BadUsage, match="has no host") as error:
        open_store("sqlite://ann:secret@host/memories")

    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("sqlit:x.db", "no store is called 'sqlit'; did you mean 'sqlite'?"),
        ("redis:x", f"no store is called 'redis'; known: {', '.join(sorted(KINDS))}"),
        ("jsonl:x?scop=user_id", "a jsonl: store has no option 'scop'; did you mean 'scope'?"),
        ("evo:x?mode=ro", "a evo: store has no option 'mode'; it takes none"),
    ],
)
def test_an_unknown_scheme_or_option_names_the_nearest(url, what):
    """A misspelling is answered with what it probably meant."""
    with pytest.raises(BadUsage) as error:
        open_store(url)

    assert str(error.value) == what


def test_options_given_in_the_call_win_over_those_of_the_url(tmp_path):
    """The command line's flags are such options."""
    (tmp_path / "a.jsonl").write_text('{"id": "ann", "text": "Hello.", "team": "ops", "user_id": "u"}\n')

    store = open_store(f"jsonl:{tmp_path}/a.jsonl?scope=user_id", scope="team")

    assert [row["scope"] for batch in store.snapshot() for row in batch.to_pylist()] == ["team=ops"]


def test_a_formatted_url_opens_the_same_path_from_anywhere():
    """Absolute and quoted, options in order of name."""
    url = urls.format_url("jsonl", Path("/data/a b?.jsonl"), {"scope": "x&y", "lang": "de"})

    assert url == "jsonl:///data/a%20b%3F.jsonl?lang=de&scope=x%26y"
    assert urls.parse(url) == StoreUrl("jsonl", "/data/a b?.jsonl", {"scope": "x&y", "lang": "de"})


def test_every_kind_says_what_it_is_and_what_its_options_mean():
    """`memfold stores` prints this."""
    for kind in KINDS.values():
        assert kind.summary
        assert urls.parse(kind.example).scheme == kind.scheme
        assert all(meaning and meaning == meaning.strip() for meaning in kind.options().values())


def test_opening_the_registry_imports_no_adapter():
    """A store of one kind does not wait for the libraries of the others."""
    code = (
        "import sys, memfold_flows.stores; "
        "print([name for name in sys.modules if name.startswith('memfold_flows.stores.') "
        "and name.rsplit('.')[-1] in ('sqlite', 'evo', 'jsonl', 'parquet', 'praisonai', 'praisonai_file')])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
