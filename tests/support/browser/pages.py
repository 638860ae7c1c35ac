"""A real chromium, shared by the tests of a process, whose pages are watched."""

import contextlib
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from bench import offline
from playwright.async_api import Browser, BrowserContext, CDPSession, ConsoleMessage, Page, Request, async_playwright

from support.http_client import DEADLINE_S
from support.paths import ROOT

COMMANDS = ("chromium", "chromium-browser", "google-chrome")
AXE = offline.CLIENTS / "axe-core" / "axe.min.js"
SCREENSHOTS = ROOT / "build" / "console-screenshots"
LOCAL = ("127.0.0.1", "localhost")
MAX_STEPS = 60
"""Maximum number of keys that lead to an element."""
SERIOUS = ("serious", "critical")
WATCH_VIOLATIONS = """
addEventListener("securitypolicyviolation", event =>
  console.error(`CSP: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));
"""
FLAGS = (
    "--disable-gpu",
    "--js-flags=--heap-snapshot-string-limit=1000000 --expose-gc",
)
"""V8 cuts strings in snapshots of its heap at 1024 characters otherwise."""
Theme = Literal["dark", "light"]


def command() -> str | None:
    """Returns the path of the machine's chromium."""
    return next((path for path in map(shutil.which, COMMANDS) if path), None)


@contextlib.asynccontextmanager
async def chromium(*flags: str, is_isolated: bool = True) -> AsyncIterator[Browser]:
    """Starts the machine's chromium.

    Args:
        flags: More flags of its command line.
        is_isolated: Whether it gets a network of its own.
    """
    found = command()
    assert found, f"none of {', '.join(COMMANDS)} on PATH; install it: make chromium"
    with tempfile.TemporaryDirectory(prefix="chromium-") as folder:
        if is_isolated and sys.platform == "linux":
            found = _isolated(Path(folder), found)
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=found,
                args=[*FLAGS, *flags],
                chromium_sandbox=hasattr(os, "geteuid") and os.geteuid() != 0,
                env={"PATH": os.defpath, "HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8"},
                timeout=DEADLINE_S * 1000,
            )
            try:
                yield browser
            finally:
                await browser.close()


def _isolated(folder: Path, found: str) -> str:
    script = folder / "chromium"
    words = [sys.executable, str(Path(__file__).with_name("isolated.py")), found]
    script.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    script.chmod(0o700)
    return str(script)


@dataclass
class Watch:
    """What a page did."""

    requests: list[Request] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """Errors of its scripts and its console, violations of its policy."""

    def follow(self, page: Page) -> None:
        """Collects what the page does from now on."""
        page.on("request", lambda request: self.requests.append(request))
        page.on("pageerror", lambda error: self.errors.append(f"{error.name}: {error.message}"))
        page.on("console", self._console)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(f"{message.text} ({message.location.get('url', '')})")

    def foreign(self) -> list[str]:
        """Returns the URLs of other hosts than this machine."""
        urls = (urlsplit(request.url) for request in self.requests)
        return [url.geturl() for url in urls if url.scheme not in ("data", "blob") and url.hostname not in LOCAL]

    def check(self, *expected: str) -> None:
        """Asserts that the page loaded nothing from other hosts, and that its console has no error.

        Args:
            expected: Texts of errors that the test provokes.
        """
        assert not (foreign := self.foreign()), f"requests to other hosts: {foreign}"
        errors = [error for error in self.errors if not any(text in error for text in expected)]
        assert not errors, f"errors of the page: {errors}"


class Tab:
    """A page of the console in a browser profile of its own."""

    def __init__(self, page: Page, url: str, watch: Watch) -> None:
        self.page = page
        self.url = url
        self.watch = watch

    async def open(self, path: str = "") -> None:
        """Loads a path below /console."""
        await self.page.goto(f"{self.url}/console{path}", wait_until="load")

    async def go(self, path: str) -> None:
        """Shows a path below /console as a link in the page does, without loading the page again."""
        move = "path => { history.pushState(null, '', path); dispatchEvent(new PopStateEvent('popstate')) }"
        await self.page.evaluate(move, f"/console{path}")
        await self.page.locator("main > *").first.wait_for(state="attached")

    async def devtools(self) -> CDPSession:
        """Returns a session of the Chrome DevTools Protocol."""
        return await self.page.context.new_cdp_session(self.page)

    async def focus(self, selector: str, key: str = "Tab") -> None:
        """Moves the focus to an element by the keyboard, as a user without a mouse does."""
        for _ in range(MAX_STEPS):
            await self.page.keyboard.press(key)
            if await self.page.evaluate("selector => !!document.activeElement?.matches(selector)", selector):
                return
        raise AssertionError(f"{key} does not reach {selector} in {MAX_STEPS} steps")

    async def violations(self) -> list[str]:
        """Returns the serious and critical findings of axe-core."""
        assert AXE.exists(), f"{AXE} is missing; install it: make test-clients"
        await self.page.evaluate(AXE.read_text() + "\n;undefined")
        found: dict[str, Any] = await self.page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
        serious = [each for each in found["violations"] if each["impact"] in SERIOUS]
        return [
            f"{each['id']}: {node['html'][:200]} {node['failureSummary']}" for each in serious for node in each["nodes"]
        ]

    async def sideways(self) -> int:
        """Returns by how many pixels the page can be scrolled sideways."""
        return int(await self.page.evaluate("() => document.documentElement.scrollWidth - innerWidth"))

    async def heap(self) -> str:
        """Returns a snapshot of the heap of the page's scripts, after a garbage collection."""
        session, chunks = await self.devtools(), list[str]()
        session.on("HeapProfiler.addHeapSnapshotChunk", lambda event: chunks.append(event["chunk"]))
        await session.send("HeapProfiler.collectGarbage")
        await session.send("HeapProfiler.takeHeapSnapshot", {"reportProgress": False})
        await session.detach()
        return "".join(chunks)

    async def keep(self, name: str) -> Path:
        """Stores a picture of the page, which CI keeps."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        path = SCREENSHOTS / f"{name}.png"
        await self.page.screenshot(path=path)
        return path


@contextlib.asynccontextmanager
async def tab(
    browser: Browser,
    url: str,
    width: int = 1280,
    height: int = 800,
    theme: Theme = "light",
    expected: tuple[str, ...] = (),
) -> AsyncIterator[Tab]:
    """Opens an empty page in a new profile; at the end, asserts that it used no other host and had no error.

    Args:
        browser: The browser.
        url: The gateway.
        width: Width of its window.
        height: Height of its window.
        theme: The color scheme that the user prefers.
        expected: Texts of errors that the test provokes.
    """
    context = await browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=theme, reduced_motion="reduce"
    )
    try:
        one = await new_tab(context, url)
        try:
            yield one
        except BaseException:
            await one.keep(f"failed-{width}-{theme}")
            print("errors of the page:", one.watch.errors, "text:", await one.page.inner_text("body"))
            raise
        one.watch.check(*expected)
    finally:
        await context.close()


async def new_tab(context: BrowserContext, url: str) -> Tab:
    """Opens an empty page in an existing profile."""
    context.set_default_timeout(DEADLINE_S * 500)
    page, watch = await context.new_page(), Watch()
    await page.add_init_script(WATCH_VIOLATIONS)
    watch.follow(page)
    return Tab(page, url, watch)
