"""A page in a real browser, driven over the pipe that Chromium offers to developer tools: no port and no library."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import subprocess
import time
from pathlib import Path
from typing import Any

from browser import browser

FLAGS = (
    *(
        "--headless",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-extensions",
        "--disable-background-networking",
    ),
    *("--disable-component-update", "--no-first-run", "--mute-audio", "--use-angle=swiftshader"),
    *("--enable-unsafe-swiftshader", "--remote-debugging-pipe", "--hide-scrollbars"),
)
PATIENCE_S = 60


class Chromium:
    """One tab: ``noise`` it wrote to the console, addresses it requested, what it called bound functions with."""

    def __init__(self, profile: Path, size: tuple[int, int] = (1200, 800), *, dark: bool = False) -> None:
        self.noise: list[str] = []
        self.requests: list[str] = []
        self.bound: list[str] = []
        self._number, self._rest = 0, b""
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs_in, theirs_out)]

        def as_three_and_four() -> None:
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        command = [browser(), *FLAGS, f"--user-data-dir={profile}", f"--window-size={size[0]},{size[1]}", "about:blank"]
        quiet: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.DEVNULL,
            "stderr": subprocess.DEVNULL,
        }
        self.process = subprocess.Popen(command, preexec_fn=as_three_and_four, pass_fds=(3, 4), **quiet)
        for end in (theirs_in, theirs_out, *ends):
            os.close(end)
        self._session: str | None = None
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(info["targetId"] for info in targets if info["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        width, height = size
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._out)
        os.close(self._in)

    def call(self, method: str, **params: Any) -> Any:
        """The result of a command of the browser."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            event = self._next(end)
            if event.get("id") == self._number:
                assert "error" not in event, f"{method}: {event['error']}"
                return event["result"]
        raise TimeoutError(method)

    def _next(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            assert select.select([self._in], [], [], max(0.0, end - time.monotonic()))[0], "the browser is silent"
            part = os.read(self._in, 1 << 20)
            assert part, "the browser has ended"
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\0")
        event: dict[str, Any] = json.loads(line)
        params = event.get("params", {})
        match event.get("method"):
            case "Runtime.consoleAPICalled":
                self.noise.append(" ".join(str(a.get("value", a.get("description"))) for a in params["args"]))
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                self.noise.append(details.get("exception", {}).get("description") or details["text"])
            case "Log.entryAdded":
                self.noise.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
            case "Runtime.bindingCalled":
                self.bound.append(params["payload"])
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
        return event

    def open(self, address: str) -> None:
        self.call("Page.navigate", url=address)

    def run(self, script: str) -> Any:
        """The value of an expression of JavaScript, which may be a promise."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def until(self, script: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if self.run(f"Boolean({script})"):
                return
            time.sleep(0.05)
        raise AssertionError(f"never true: {script}\n{self.noise}")

    def click(self, x: float, y: float) -> None:
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
