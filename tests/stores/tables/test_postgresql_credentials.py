"""A password in a store's URL opens the store, and is nowhere else: not in a message, a run, a log or the ledger."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from memfold.errors import BadUsage, StoreError
from memfold_flows.passes import Request
from memfold_flows.stores import open_store, urls
from memfold_flows.stores.postgresql_connections import parse_server

SECRET = "s3cr:t/w@rd?#%"
QUOTED = "s3cr%3At%2Fw%40rd%3F%23%25"


@pytest.fixture
def guarded(fill_postgresql):
    """A store whose user must say a password, by its URL without one."""
    filled = fill_postgresql()
    filled.execute(
        "insert into memories (memory_id, content) "
        "values ('ann', 'Hello there.'), ('bob', 'hello there'), ('cat', 'Bye.')"
    )
    filled.execute(
        "do $$ begin if not exists (select from pg_roles where rolname = 'guarded') then "
        f"create role guarded superuser login password '{SECRET.replace('%', '%%')}'; end if; end $$"
    )
    return filled.url.replace("//memfold@", "//guarded@")


def with_password(url, password=QUOTED):
    return url.replace("//guarded@", f"//guarded:{password}@")


def memfold(*arguments, **environment):
    """Run the command line as a person does; returns its exit code and all that it said."""
    done = subprocess.run(
        [sys.executable, "-m", "memfold_flows.cli", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    return done.returncode, done.stdout + done.stderr


def test_a_password_opens_the_store_and_is_not_kept(guarded):
    """Neither in the URL that the store has, nor in what a program prints of it."""
    store = open_store(with_password(guarded))

    assert store.url == f"{guarded}?table=public.memories"
    assert SECRET not in repr(parse_server(with_password(guarded).removeprefix("postgresql:"), {}))


def test_the_same_process_opens_the_store_again_by_the_url_that_runs_keep(guarded):
    """An apply, an undo and a clean-up name the store by its run, which has no password."""
    url = open_store(with_password(guarded)).url

    assert sum(batch.num_rows for batch in open_store(url).snapshot()) == 3


def test_a_wrong_password_is_refused_and_not_shown(guarded):
    """The message says where one is looked for."""
    with pytest.raises(StoreError, match=r"set PGPASSWORD, or write it into ~/.pgpass") as error:
        open_store(with_password(guarded, "wr%40ng-s3cret"))

    assert "wr@ng" not in str(error.value)
    assert "wr%40ng" not in str(error.value)


def test_a_database_that_is_not_there_is_an_error(postgresql_server):
    """And not one that may come back."""
    with pytest.raises(StoreError, match=r'refused the connection .*database "nowhere" does not exist'):
        open_store(postgresql_server.url("nowhere"))


def test_a_whole_pass_leaves_no_trace_of_the_password(guarded, home):
    """A run, its history and its undo: nothing said or written to the run directory or the ledger holds it."""
    url, said = with_password(guarded), ""
    for command in (
        ["run", url, "--yes", "--json"],
        ["history", url],
        ["resolve", url, "bob", "--json"],
        ["undo", "latest", "--store", url, "--yes"],
    ):
        code, words = memfold(*command)
        assert code == 0, words
        said += words
    code, words = memfold("run", f"{url}?colour=red", "--yes")
    assert code == 2
    said += words

    with psycopg.connect(guarded.replace("//guarded@", "//memfold@")) as connection:
        tables = connection.execute("select tablename from pg_tables where tablename like 'memfold%'").fetchall()
        ledger = str([connection.execute(f"select t::text from {name} t").fetchall() for (name,) in tables])
    files = b"".join(path.read_bytes() for path in Path(home).rglob("*") if path.is_file())
    for written in (SECRET, QUOTED, "s3cr"):
        assert written not in said
        assert written not in ledger
        assert written.encode() not in files


def test_a_flow_refuses_a_password_that_prefect_would_keep(guarded):
    """Parameters of a flow run stand in Prefect's database and on its pages."""
    with pytest.raises(BadUsage, match="has a password, which Prefect would keep and show") as error:
        Request(store=with_password(guarded))

    assert "s3cr" not in str(error.value)


def test_init_says_what_is_there_without_the_password(guarded):
    """The URL that it prints is the one that runs keep."""
    code, words = memfold("init", with_password(guarded), "--json")

    assert code == 0, words
    assert json.loads(words) == {"store": f"{guarded}?table=public.memories", "created": False}


def test_a_password_may_come_from_the_environment(guarded):
    """As for every program that talks to PostgreSQL."""
    code, words = memfold("plan", guarded, PGPASSWORD=SECRET)
    assert code == 0, words

    code, words = memfold("plan", guarded)
    assert code == 1
    assert "set PGPASSWORD" in words


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:secret@host:5432/db?table=x", "postgresql://ann@host:5432/db?table=x"),
        ("postgres://ann:se@cr:et@host/db", "postgres://ann@host/db"),
        ("postgresql://:secret@host/db", "postgresql://@host/db"),
        ("postgresql://ann@host:5432/db", "postgresql://ann@host:5432/db"),
        ("postgresql://host/db?password=secret&table=x", "postgresql://host/db?table=x"),
        ("sqlite:a:b@c.db", "sqlite:a:b@c.db"),
    ],
)
def test_a_url_is_shown_without_its_password(url, shown):
    """Whatever characters it has."""
    assert urls.without_password(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:sec/ret@host/db",
        "postgresql://ann:sec?ret@host/db",
        "postgresql://ann:sec#ret@host/db",
        "postgresql://host/db?password=secret",
        "postgresql://ann:sec@ret:x@host:port/db",
        "postgresql:ann:secret@host/db",
        "postgresql://ann:secret@host/db/more",
        "postgresql://ann:secret@host/db?colour=red",
        "postgresql://ann:secret@host/db?table",
        "postgresql://ann:secret@host/db?table=a&table=b",
    ],
)
def test_a_url_that_cannot_be_read_is_bad_usage_that_does_not_quote_it(url):
    """A part of a password is a password too."""
    with pytest.raises(BadUsage) as error:
        open_store(url)

    assert "sec" not in str(error.value).replace("special", "")
    assert "ret" not in str(error.value)


def test_a_host_may_be_an_address_a_socket_or_none(postgresql_server):
    """What is not named comes from libpq's environment; the store's URL says where it led to."""
    folder, port = postgresql_server.folder, postgresql_server.port
    by_socket = open_store_of(f"postgresql://memfold@:{port}/postgres?host={folder}&table=t")

    assert by_socket == f"postgresql://memfold@:{port}/postgres?host={folder}&table=public.t"
    assert open_store_of(by_socket) == by_socket
    assert parse_server("//ann@[::1]:5432/db", {}).url == "postgresql://ann@[::1]:5432/db"
    assert parse_server("///db", {}).url == "postgresql:///db"


def open_store_of(url):
    """The URL of the store that this one opens, once its table is there."""
    from memfold_flows.stores import postgresql

    parts = urls.parse(url)
    postgresql.init(parts.path, parts.options)
    return open_store(url).url
