"""A real Chromium without a window, spoken to over its DevTools protocol: what the page shows, says and asks for."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

#: Nothing of the browser's own goes to the network, and each start is the first.
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)


def chromium() -> str | None:
    """The browser of this machine, if it has one."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Page:
    """One page of the browser. ``requests`` lists the addresses that it asked for, ``faults`` what went wrong in it."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._session: str | None = None
        self.requests: list[str] = []
        self.faults: list[str] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._ask(f"{domain}.enable")

    def open(self, path: Path) -> float:
        """Load a file; returns the seconds until it was drawn."""
        began = time.monotonic()
        self._ask("Page.navigate", url=path.as_uri())
        while not self.run("document.readyState === 'complete' && location.protocol === 'file:'"):
            time.sleep(0.02)
        self.run("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
        return time.monotonic() - began

    def run(self, script: str) -> Any:
        """What an expression of JavaScript comes to."""
        answer = self._ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def press(self, *keys: str) -> None:
        """Press keys one after the other, as a person does."""
        for key in keys:
            text = {"text": key} if len(key) == 1 else {"windowsVirtualKeyCode": _CODES[key]}
            self._ask("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
            self._ask("Input.dispatchKeyEvent", type="keyUp", key=key)

    def look_like(self, *, width: int = 1100, height: int = 900, scheme: str = "light", media: str = "") -> None:
        """Take a width, a colour scheme and a medium."""
        self._ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._ask("Emulation.setEmulatedMedia", media=media, features=features)

    def screenshot(self) -> bytes:
        """A PNG of what is seen."""
        return base64.b64decode(self._ask("Page.captureScreenshot", format="png")["data"])

    def printed(self) -> bytes:
        """The page as a printer gets it, as PDF."""
        return base64.b64decode(self._ask("Page.printToPDF", printBackground=True)["data"])

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        self._socket.send(json.dumps(message | ({"sessionId": self._session} if self._session else {})))
        while True:
            answer = json.loads(self._socket.recv(timeout=60))
            if answer.get("id") == number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        told = event.get("params", {})
        match event.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(told["request"]["url"])
            case "Runtime.exceptionThrown":
                self.faults.append(told["exceptionDetails"]["text"])
            case "Log.entryAdded":
                self.faults.append(told["entry"]["text"])
            case "Page.javascriptDialogOpening":
                self.faults.append(f"a dialog: {told['message']}")


_CODES = {"Escape": 27, "Tab": 9, "Enter": 13}


@contextmanager
def opened(profile: Path) -> Iterator[Page]:
    """A browser with an empty profile of its own; ended with all its children when the block is left."""
    from websockets.sync.client import connect

    binary = chromium()
    if binary is None:
        raise RuntimeError("no chromium on the PATH")
    command = [binary, *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, start_new_session=True, **quiet)  # type: ignore[call-overload]
    try:
        with connect(_address(profile, process), max_size=None, proxy=None) as socket:
            yield Page(socket)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def _address(profile: Path, process: subprocess.Popen[bytes]) -> str:
    port_file = profile / "DevToolsActivePort"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if port_file.is_file() and len(lines := port_file.read_text().split()) == 2:
            return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
        time.sleep(0.05)
    raise RuntimeError("chromium did not start")
