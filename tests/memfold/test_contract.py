"""The contract with PraisonAI: the same class, outcome for outcome, and an import that costs nothing."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import typing
import warnings
from decimal import Decimal
from fractions import Fraction
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memfold import contract
from memfold.contract import AsyncMemoryConsolidationProtocol, ConsolidationResult, MemoryConsolidationProtocol

RECORDED = Path(__file__).parents[1] / "data" / "praisonai_oracle.jsonl"
ORIGINAL_MODULE = "praisonaiagents.memory.results"


class MyF(float):
    """A float by another name, as the recorded expressions use it."""


class MyI(int):
    """An int by another name, as the recorded expressions use it."""


NAMES: dict[str, Any] = {
    "R": ConsolidationResult,
    "D": Decimal,
    "F": Fraction,
    "np": np,
    "nan": nan,
    "inf": inf,
    "MyF": MyF,
    "MyI": MyI,
}


def test_every_recorded_outcome_of_the_original_is_ours_too():
    """2,501 expressions: the value and its type, or the exception and its message."""
    recorded = [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()]

    differing = [each["expr"] for each in recorded if outcome(each["expr"]) != expected(each)]

    assert (len(recorded), differing) == (2501, [])


def test_a_loss_equal_to_the_limit_is_allowed():
    """The limit is the last fraction that passes: 25 of 100 at 0.25, not 26."""
    at_the_limit = ConsolidationResult(entries_before=100, retained_originals=75)
    beyond_it = ConsolidationResult(entries_before=100, retained_originals=74)

    assert not at_the_limit.exceeds_loss(0.25)
    assert beyond_it.exceeds_loss(0.25)


def test_the_protocols_look_at_names_only():
    """isinstance asks for the one method, as the original does."""

    class Sync:
        def consolidate(self) -> None: ...

    class Async:
        async def aconsolidate(self) -> None: ...

    assert isinstance(Sync(), MemoryConsolidationProtocol)
    assert not isinstance(Sync(), AsyncMemoryConsolidationProtocol)
    assert isinstance(Async(), AsyncMemoryConsolidationProtocol)
    assert not isinstance(Async(), MemoryConsolidationProtocol)


def test_the_annotations_of_the_protocols_resolve():
    """A framework that reads type hints at run time gets them."""
    hints = typing.get_type_hints(MemoryConsolidationProtocol.consolidate)

    assert hints == {"memory": Any, "max_loss_fraction": float, "return": ConsolidationResult}


@pytest.mark.praisonai
def test_fields_and_defaults_are_those_of_the_original():
    """Names, order, defaults and equality; nothing frozen, nothing slotted."""
    original = pytest.importorskip("praisonaiagents.memory").ConsolidationResult

    assert shape(ConsolidationResult) == shape(original)
    assert repr(ConsolidationResult(3, 2)) == repr(original(3, 2))
    assert dataclasses.asdict(ConsolidationResult()) == dataclasses.asdict(original())


@pytest.mark.praisonai
@pytest.mark.parametrize("limit", [True, "0.25", None, nan, inf, -0.1, 1.1, 10**400])
def test_a_bad_limit_is_refused_in_the_words_of_the_original(limit):
    """Same exception, same message, before any count is looked at."""
    original = pytest.importorskip("praisonaiagents.memory").ConsolidationResult

    assert refusal(ConsolidationResult, limit) == refusal(original, limit)


@pytest.mark.praisonai
@pytest.mark.parametrize("name", ["MemoryConsolidationProtocol", "AsyncMemoryConsolidationProtocol"])
def test_the_original_protocols_accept_and_refuse_the_same_objects(name):
    """Callable or not, inherited, answered by __getattr__, a class object: isinstance gives the same answer."""
    original = getattr(pytest.importorskip("praisonaiagents.memory"), name)
    ours = getattr(contract, name)

    assert [isinstance(each, ours) for each in CANDIDATES] == [isinstance(each, original) for each in CANDIDATES]


@pytest.mark.praisonai
@pytest.mark.parametrize(
    ("name", "method"),
    [("MemoryConsolidationProtocol", "consolidate"), ("AsyncMemoryConsolidationProtocol", "aconsolidate")],
)
def test_the_methods_take_what_the_original_methods_take(name, method):
    """The same parameters with the same defaults, and hints under the same names."""
    import inspect

    original = getattr(getattr(pytest.importorskip("praisonaiagents.memory"), name), method)
    ours = getattr(getattr(contract, name), method)

    assert parameters(inspect.signature(ours)) == parameters(inspect.signature(original))
    assert typing.get_type_hints(ours).keys() == typing.get_type_hints(original).keys()
    assert inspect.iscoroutinefunction(ours) == inspect.iscoroutinefunction(original)


def test_importing_memfold_brings_neither_prefect_nor_numba_nor_duckdb():
    """The contract costs an agent nothing: the heavy libraries come when they are used."""
    code = "import sys, memfold, memfold.contract, memfold.gate, memfold.models, memfold.rewrite; print(*sys.modules)"

    loaded = set(
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    )

    assert loaded.isdisjoint({"prefect", "numba", "duckdb", "polars", "datasketch", "scipy", "pandera"})
    assert "memfold.contract" in loaded


def test_importing_the_contract_needs_the_standard_library_only():
    """An agent may import the result class without a single package installed."""
    code = "import sys; import memfold.contract; print(*{name.split('.')[0] for name in sys.modules})"

    loaded = set(
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    )

    assert loaded.isdisjoint({"pyarrow", "numpy", "pydantic"})


class Plain:
    def consolidate(self) -> None: ...


class Awaited:
    async def aconsolidate(self) -> None: ...


class Switched:
    consolidate = None
    aconsolidate = 1


class Answering:
    def __getattr__(self, name: str) -> str:
        return name


CANDIDATES = [Plain(), Awaited(), Switched(), Answering(), Plain, Awaited, object(), None, "text"]


def outcome(expression: str) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            value = eval(expression, dict(NAMES))
        except Exception as error:  # noqa: BLE001  (which exception is the outcome)
            return {"exc": qualified(type(error)), "msg": str(error)}
        return {"type": qualified(type(value)), "repr": repr(value)}


def expected(recorded: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in recorded.items() if key != "expr"}


def qualified(kind: type) -> str:
    module = ORIGINAL_MODULE if kind is ConsolidationResult else kind.__module__
    return f"{module}.{kind.__name__}"


def shape(kind: type) -> list[tuple[str, object, bool, bool]]:
    return [(each.name, each.default, each.init, each.compare) for each in dataclasses.fields(kind)]


def refusal(kind: type, limit: object) -> tuple[str, str]:
    with pytest.raises((ValueError, OverflowError, TypeError)) as caught:
        kind(entries_before="bad").exceeds_loss(limit)
    return type(caught.value).__name__, str(caught.value)


def parameters(signature: Any) -> list[tuple[str, object, object]]:
    return [(each.name, each.kind, each.default) for each in signature.parameters.values()]
