"""An OpenAI-compatible endpoint over HTTP: time-outs, retries of what may pass, and no endless answers."""

from __future__ import annotations

import email.utils
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from memfold.errors import MemfoldError
from memfold_flows.proposer.options import KEY_VARIABLE

LARGEST_ANSWER = 4_000_000
_FIRST_WAIT_SECONDS = 0.5


class NoAnswer(Exception):
    """The endpoint gave nothing that could be read; says why, without a word of what was sent or came back.

    ``to_do``: what a person should change, where asking again would end the same way; "" where it may not.
    """

    def __init__(self, why: str, to_do: str = "") -> None:
        super().__init__(why)
        self.to_do = to_do


class OutOfTime(NoAnswer):
    """The seconds of the budget ended before an answer came, which is nobody's fault."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The body of an answer, and how often the endpoint was called for it."""

    body: dict[str, Any]
    calls: int


@dataclass(slots=True)
class Endpoint:
    """One API, called until an answer comes, an error stays, or the time is up."""

    client: Any
    timeout_seconds: float
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    #: Calls that were sent, those that failed included.
    calls: int = 0

    def post(self, url: str, body: dict[str, Any], *, deadline: float, tries: int) -> dict[str, Any]:
        """What the endpoint answers to this body, asked so many times at most.

        Raises:
            NoAnswer: it refused, broke off, took too long, or gave no JSON.
        """
        for attempt in range(tries):
            try:
                return self._once(url, body, deadline)
            except _Failed as failed:
                why, wait, to_do = failed.why, failed.wait, failed.to_do
            if self.monotonic() >= deadline:
                raise OutOfTime(f"{why}, and max_seconds is spent")
            if wait is None or attempt == tries - 1:
                raise NoAnswer(why, to_do)
            pause = wait or _FIRST_WAIT_SECONDS * 2**attempt
            if self.monotonic() + pause >= deadline:
                raise OutOfTime(f"{why}, and waiting {pause:g} s would be longer than max_seconds allows")
            self.sleep(pause)
        raise NoAnswer("no call is left")

    def _once(self, url: str, body: dict[str, Any], deadline: float) -> dict[str, Any]:
        import httpx

        self.calls += 1
        ends_at = min(deadline, self.monotonic() + self.timeout_seconds)
        seconds = max(ends_at - self.monotonic(), 0.01)
        try:
            with self.client.stream("POST", url, json=body, timeout=seconds) as response:
                if response.status_code != httpx.codes.OK:
                    raise _refusal(response)
                return _json_object(b"".join(self._chunks(response.iter_bytes(), ends_at)))
        except httpx.TimeoutException:
            raise _Failed("it took too long", 0.0) from None
        except httpx.TransportError as error:
            raise _Failed(f"it cannot be reached or broke off ({type(error).__name__})", 0.0) from None
        except httpx.HTTPError as error:
            raise _Failed(f"its answer cannot be read ({type(error).__name__})") from None

    def _chunks(self, chunks: Iterator[bytes], ends_at: float) -> Iterator[bytes]:
        """The parts of an answer as they come; a time-out of the library's own counts from part to part."""
        import httpx

        size = 0
        for chunk in chunks:
            size += len(chunk)
            if size > LARGEST_ANSWER:
                raise _Failed(f"its answer is larger than {LARGEST_ANSWER} bytes")
            if self.monotonic() >= ends_at:
                raise httpx.ReadTimeout("the answer came too slowly")
            yield chunk


@contextmanager
def opened(key: str | None, *, timeout_seconds: float, **clocks: Any) -> Iterator[Endpoint]:
    """A connection that sends this key with each call.

    Raises:
        MemfoldError: httpx is not installed.
    """
    try:
        import httpx
    except ImportError:
        raise MemfoldError(
            "proposer is set, but httpx is not installed; nothing was planned. pip install 'memfold[model]'"
        ) from None
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    # A redirect could carry the texts, and the key, to somebody else.
    with httpx.Client(headers=headers, follow_redirects=False) as client:
        yield Endpoint(client, timeout_seconds, **clocks)


class _Failed(Exception):
    """One try without an answer. ``wait``: seconds until another may be worth it, 0.0 for a guess, None for never."""

    def __init__(self, why: str, wait: float | None = None, to_do: str = "") -> None:
        super().__init__(why)
        self.why, self.wait, self.to_do = why, wait, to_do


def _refusal(response: Any) -> _Failed:
    code: int = response.status_code
    may_pass = code == 429 or code >= 500
    wait = _asked_to_wait(response.headers.get("retry-after")) if may_pass else None
    return _Failed(f"it answered with HTTP {code}", wait, _to_do(response))


def _to_do(response: Any) -> str:
    """What a person should change about a call that will be refused again."""
    code: int = response.status_code
    if code in (401, 403):
        has_key = "authorization" in response.request.headers
        return (
            f"The key in {KEY_VARIABLE} is not taken: set another" if has_key else f"No key is set: set {KEY_VARIABLE}"
        )
    if code in (400, 404, 422):
        return "Look at proposer.url and proposer.model: it knows no such address or model, or takes no JSON schema"
    return ""


def _json_object(content: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise _Failed("it did not answer with a JSON object")
    return answer


def _asked_to_wait(value: str | None) -> float:
    """The seconds of a Retry-After header, which may also name a time; 0.0 where it says nothing of use."""
    if value is None:
        return 0.0
    try:
        return max(float(value), 0.0) if float(value) < float("inf") else 0.0
    except ValueError:
        pass
    try:
        return max(email.utils.parsedate_to_datetime(value).timestamp() - time.time(), 0.0)
    except (ValueError, TypeError):
        return 0.0
