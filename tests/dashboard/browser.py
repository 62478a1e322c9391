"""A real Chromium without a window, and the dashboard in it."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from playwright.sync_api import Page, expect, sync_playwright

from sqlcache.demo.servers import find_program

_TIMEOUT_MS = 30_000  # a busy machine's pages are slow

NAME_OF_ELSEWHERE = "sqlcache.example"
"""A name that leads here, and is none of this machine."""

# As root, or in a container, Chromium has no sandbox of its own, and perhaps little shared memory.
_FLAGS = [
    *("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"),
    f"--host-resolver-rules=MAP {NAME_OF_ELSEWHERE} 127.0.0.1",
]


class Browser:
    """Debian's Chromium. What its pages complain of is in `complaints`: errors, broken rules of
    the Content-Security-Policy, exceptions."""

    def __init__(self) -> None:
        self.complaints: list[str] = []

    def __enter__(self) -> Self:
        expect.set_options(timeout=_TIMEOUT_MS)
        self._playwright = sync_playwright().start()
        try:
            program = find_program("chromium", "chromium")
            self._chromium = self._playwright.chromium.launch(executable_path=program, args=_FLAGS)
        except BaseException:
            self._playwright.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._chromium.close()
        self._playwright.stop()

    def close_pages(self) -> None:
        """Closes all that there are, with what they keep."""
        for context in self._chromium.contexts:
            context.close()

    def page(self, *, size: tuple[int, int] = (1440, 900), **options: Any) -> Page:
        """A new page, with nothing that others have left."""
        viewport = {"width": size[0], "height": size[1]}
        page = self._chromium.new_context(viewport=viewport, **options).new_page()  # type: ignore[arg-type]
        page.set_default_timeout(_TIMEOUT_MS)
        page.on("pageerror", lambda error: self.complaints.append(f"exception: {error}"))
        page.on(
            "console",
            lambda said: (
                self.complaints.append(f"{said.type}: {said.text}")
                if said.type in ("error", "warning")
                else None
            ),
        )
        return page

    def open(self, admin_port: int, *, host: str = "127.0.0.1", **options: Any) -> Page:
        """The dashboard of the sqlcache whose admin door is there."""
        page = self.page(**options)
        page.goto(f"http://{host}:{admin_port}/")
        return page


def column(page: Page, panel: str, title: str) -> int:
    """The place of a column in the list of a panel."""
    heads = page.locator(f"#{panel} thead th").all_text_contents()
    return heads.index(title)
