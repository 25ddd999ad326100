"""The answers that are asked for, as schemas, and read as strictly: anything else is no answer."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from memfold.proposals import Judged, Rewritten
from memfold.questions import Kind


class Unusable(ValueError):
    """What came back is no answer to the question; says why, without a word of it."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Pair(_Strict):
    ids: list[str]
    verdict: Literal["same", "contains", "conflict", "supersedes", "distinct"]
    stays: str | None


class _Verdicts(_Strict):
    pairs: list[_Pair]


class _Text(_Strict):
    ids: list[str]
    text: str


class _Texts(_Strict):
    merge: list[_Text]


_FORMS: dict[Kind, type[BaseModel]] = {"judge": _Verdicts, "rewrite": _Texts}


def response_format(kind: Kind) -> dict[str, Any]:
    """The schema of the answer to a question of this kind, as an OpenAI-compatible endpoint takes it."""
    schema = _closed(_FORMS[kind].model_json_schema())
    return {"type": "json_schema", "json_schema": {"name": f"memfold_{kind}", "strict": True, "schema": schema}}


def read_verdicts(text: str) -> list[Judged]:
    """The verdicts of an answer.

    Raises:
        Unusable: it is empty, cut off, or of another form than was asked for.
    """
    answer = _read("judge", text)
    return [Judged(tuple(each.ids), each.verdict, each.stays) for each in answer.pairs]


def read_texts(text: str) -> list[Rewritten]:
    """The texts of an answer.

    Raises:
        Unusable: it is empty, cut off, or of another form than was asked for.
    """
    return [Rewritten(tuple(each.ids), each.text) for each in _read("rewrite", text).merge]


def _read(kind: Kind, text: str) -> Any:
    if not text.strip():
        raise Unusable("the answer is empty")
    try:
        return _FORMS[kind].model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"] if isinstance(part, int) or part in _WORDS) or "the answer"
        raise Unusable(f"not of the form that was asked for: {place}: {first['type'].replace('_', ' ')}") from None


#: A name that the answer made up may be anything, so it is not repeated.
_WORDS = frozenset(("pairs", "merge", "ids", "verdict", "stays", "text"))


def _closed(schema: Any) -> Any:
    """The schema with every field required and no other allowed, without titles."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(value) for name, value in schema.items() if name != "title" or not isinstance(value, str)}
    if closed.get("type") == "object":
        closed |= {"additionalProperties": False, "required": sorted(closed["properties"])}
    return closed
