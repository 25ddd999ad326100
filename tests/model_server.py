"""A model as it is seen over HTTP: a local server that answers questions as a test tells it to, well or badly."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Raw:
    """An answer below the level of a chat completion: a status, a body, and how it comes."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    #: Seconds before each byte.
    drips: float = 0.0
    #: The connection ends after this many bytes of the body.
    ends_after: int | None = None


@dataclass
class Asked:
    """A question as the model sees it."""

    kind: str
    told: dict[str, Any]
    body: dict[str, Any]

    @property
    def pairs(self) -> list[list[str]]:
        return self.told.get("pairs", [])

    def text(self, label: str) -> str:
        return next(memory["text"] for memory in self.told["memories"] if memory["id"] == label)

    def label(self, text: str) -> str:
        return next(memory["id"] for memory in self.told["memories"] if memory["text"] == text)


Answer = Callable[[Asked], Any]


@dataclass
class Model:
    """The server: what it was asked so far, and how it answers. An answer is JSON, text for the content, or ``Raw``."""

    url: str
    answer: Answer
    embed: Callable[[str], list[float]] = lambda _text: [1.0, 0.0]
    requests: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)

    def reply(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> Raw:
        self.requests.append((path, headers, body))
        if path.endswith("/embeddings"):
            data = [{"index": at, "embedding": self.embed(text)} for at, text in enumerate(body["input"])]
            return Raw(json.dumps({"data": data}).encode())
        kind = body["response_format"]["json_schema"]["name"].removeprefix("memfold_")
        asked = Asked(kind, json.loads(body["messages"][-1]["content"]), body)
        self.asked.append(asked)
        said = self.answer(asked)
        if isinstance(said, Raw):
            return said
        content = said if isinstance(said, str) else json.dumps(said)
        return Raw(completion(content))


def completion(content: str | None, *, finish: str = "stop", tokens: int = 100) -> bytes:
    """A chat completion with this content."""
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": content}}
    return json.dumps({"choices": [choice], "usage": {"total_tokens": tokens}}).encode()


def verdicts(asked: Asked, verdict: str, stays: Callable[[list[str]], str | None] = lambda _pair: None) -> Any:
    """The same verdict on every pair that was asked about."""
    return {"pairs": [{"ids": pair, "verdict": verdict, "stays": stays(pair)} for pair in asked.pairs]}


@contextmanager
def serving(answer: Answer) -> Iterator[Model]:
    """A model at work on the loopback interface."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    model = Model(f"http://127.0.0.1:{server.server_port}/v1", answer)
    server.model = model  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield model
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        raw = self.server.model.reply(self.path, dict(self.headers), body)  # type: ignore[attr-defined]
        self.send_response(raw.status)
        for name, value in {"content-length": str(len(raw.body)), **raw.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        with suppress(OSError):  # whoever waited may have given up
            self._send(raw)

    def _send(self, raw: Raw) -> None:
        body = raw.body if raw.ends_after is None else raw.body[: raw.ends_after]
        if not raw.drips:
            self.wfile.write(body)
            return
        for at in range(len(body)):
            time.sleep(raw.drips)
            self.wfile.write(body[at : at + 1])
            self.wfile.flush()

    def log_message(self, *_: object) -> None:
        pass
