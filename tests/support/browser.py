"""A headless Chromium for tests, controlled over its debugging pipe; needs no package beyond the browser."""

import base64
import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """One page of a browser; records its requests and console messages.

    >>> with Browser(tmp_path) as browser:  # doctest: +SKIP
    ...     browser.open(page.as_uri(), width=390)
    ...     browser.requests, browser.complaints
    """

    def __init__(self, profile: Path) -> None:
        self.profile = profile
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._number = 0
        self._left = b""

    def __enter__(self) -> "Browser":
        command_read, self._write = os.pipe()
        self._read, answer_write = os.pipe()

        def three_and_four() -> None:  # the file descriptors Chromium reads commands from and answers on
            # copies above 10 first: a copy that happens to be 3 or 4 would be closed when Chromium starts
            commands, answers = (fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (command_read, answer_write))
            os.dup2(commands, 3)
            os.dup2(answers, 4)

        arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        arguments += ["--hide-scrollbars", f"--user-data-dir={self.profile}", "about:blank"]
        self._process = subprocess.Popen(
            [str(CHROMIUM), *arguments],
            preexec_fn=three_and_four,  # noqa: PLW1509 - nothing else runs between fork and exec
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(command_read)
        os.close(answer_write)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session: str | None = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait(20)
        os.close(self._write)
        os.close(self._read)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of one command of the DevTools protocol."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if getattr(self, "_session", None):
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return dict(answer["result"])

    def open(self, url: str, width: int = 1280, height: int = 900) -> None:
        """Show the address in a window of that size and wait until it has loaded."""
        mobile = width < 600
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=mobile,
        )
        self.call("Page.navigate", url=url)
        while self.ask("document.readyState") != "complete" or self.ask("location.href") != url:
            pass  # every question waits for its answer

    def ask(self, expression: str) -> Any:
        """The value of an expression on the page."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def picture(self, path: Path, **clip: float) -> Path:
        """The page as PNG: all of it, or the rectangle x, y, width, height."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        whole = {"x": 0, "y": 0, "width": size["width"], "height": size["height"]}
        shown = {**whole, **clip, "scale": 1}
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=shown)
        path.write_bytes(base64.b64decode(answer["data"]))
        return path

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            self._left += os.read(self._read, 1 << 20)
        text, self._left = self._left.split(b"\0", 1)
        message: dict[str, Any] = json.loads(text)
        about = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(about["request"]["url"])
            case "Log.entryAdded":
                self.complaints.append(about["entry"]["text"])
            case "Runtime.exceptionThrown":
                self.complaints.append(about["exceptionDetails"]["text"])
            case "Runtime.consoleAPICalled":
                self.complaints.append(str(about["args"]))
        return message
