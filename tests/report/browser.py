"""A headless Chromium driven over its debugging pipe: no library, no port, no network."""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--remote-debugging-pipe",
)  # fmt: skip
PATIENCE_S = 60


def chromium() -> str | None:
    """The browser's program, or None."""
    return next(
        (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
    )


class Browser:
    """One page of a fresh browser. events: all that the page reported (console, exceptions, requests)."""

    def __init__(self, profile: Path) -> None:
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # The browser reads commands from descriptor 3 and writes answers to 4.
        command = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["bash", "-c", command, "bash", str(chromium()), *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(to_browser, from_browser), stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self._ids = itertools.count(1)
        self._left = b""
        self.events: list[dict[str, Any]] = []
        target = self._call("Target.createTarget", {"url": "about:blank"}, session=None)["targetId"]
        attached = self._call("Target.attachToTarget", {"targetId": target, "flatten": True}, session=None)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self, file: Path, *, width: int = 1400, height: int = 900, scheme: str = "light") -> None:
        """Loads the file with the network off, in a window of that size and colour scheme."""
        self.resize(width, height)
        self._call("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        offline = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        self._call("Network.emulateNetworkConditions", offline)
        self.events.clear()
        self._call("Page.navigate", {"url": file.resolve().as_uri()})
        self._wait_for("Page.loadEventFired")

    def resize(self, width: int, height: int = 900) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", size)

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self._call("Runtime.evaluate", {"expression": expression, "returnByValue": True, "awaitPromise": True})
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def picture(self, file: Path, *, whole: bool = False) -> None:
        """A screenshot, of what is in view or of the whole page."""
        shot = self._call("Page.captureScreenshot", {"captureBeyondViewport": whole})
        file.write_bytes(base64.b64decode(shot["data"]))

    def complaints(self) -> list[str]:
        """Console errors and warnings, exceptions, and log entries."""
        wrong = []
        for event in self.events:
            kind, about = event["method"], event["params"]
            if (
                kind == "Runtime.exceptionThrown"
                or kind == "Log.entryAdded"
                or (kind == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"))
            ):
                wrong.append(json.dumps(about))
        return wrong

    def requests(self) -> list[str]:
        """What the page asked for beside itself and its inline data."""
        sent = [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return [url for url in sent[1:] if not url.startswith("data:")]

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_S)
        os.close(self._write)
        os.close(self._read)

    def _call(self, method: str, params: dict[str, Any] | None = None, session: str | None = "own") -> dict[str, Any]:
        number = next(self._ids)
        message = {"id": number, "method": method, "params": params or {}}
        if session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]

    def _wait_for(self, method: str) -> None:
        while not any(event["method"] == method for event in self.events):
            self._next()

    def _next(self) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE_S
        while b"\0" not in self._left:
            ready, _, _ = select.select([self._read], [], [], max(0, until - time.monotonic()))
            assert ready, "the browser does not answer"
            piece = os.read(self._read, 1 << 20)
            assert piece, "the browser has ended"
            self._left += piece
        line, _, self._left = self._left.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message
