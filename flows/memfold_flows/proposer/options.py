"""The ``proposer`` section of the settings. The key is not among them: it is read from the environment only."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

KEY_VARIABLE = "MEMFOLD_PROPOSER_KEY"


def _url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("should be the address of an OpenAI-compatible API, such as https://api.example.com/v1")
    if parts.username or parts.password:
        raise ValueError(f"should hold no credentials; set {KEY_VARIABLE}")
    return value.rstrip("/")


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"should be a regular expression: {error}") from None
    return value


Url = Annotated[str, AfterValidator(_url), Field(json_schema_extra={"pattern": "^https?://[^/@]+"})]
Pattern = Annotated[str, AfterValidator(_pattern), Field(json_schema_extra={"format": "regex"})]


class Embeddings(BaseModel):
    """Memories that are near in meaning are asked about as pairs: by vectors of an OpenAI-compatible endpoint (model,
    url), or by those that the memories have in their metadata already (metadata_key).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str | None = Field(None, min_length=1)
    url: Url | None = None
    metadata_key: str | None = Field(None, min_length=1)
    min_cosine: float = Field(0.85, gt=0.0, le=1.0)
    neighbours: int = Field(3, ge=1, le=20)

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if (self.model is None) == (self.metadata_key is None):
            raise ValueError("should have a model or a metadata_key, one of them")
        if self.url is not None and self.model is None:
            raise ValueError("should have no url, as the vectors are those of metadata_key")
        return self


class ProposerOptions(BaseModel):
    """Which model may propose, what for, and what it may cost in one pass."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: Url
    model: str = Field(min_length=1)
    uses: tuple[Literal["judge", "rewrite"], ...] = Field(("judge",), min_length=1)
    max_calls: int = Field(50, ge=0)
    max_tokens: int = Field(100_000, ge=0)
    max_seconds: float = Field(300.0, ge=0.0)
    timeout_seconds: float = Field(60.0, gt=0.0)
    retries: int = Field(3, ge=0, le=10)
    redact: tuple[Pattern, ...] = ()
    embeddings: Embeddings | None = None
