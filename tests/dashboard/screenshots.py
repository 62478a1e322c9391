"""Takes pictures of the dashboard, over real servers: `python -m tests.dashboard.screenshots`.

Writes docs/dashboard.png, or with `--folder` pictures of each list, light, dark and narrow.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from playwright.sync_api import Page

from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateSqlcache
from tests.dashboard.browser import Browser
from tests.dashboard.shop import Shop
from tests.servers import PATIENT

PICTURE = Path(__file__).parents[2] / "docs" / "dashboard.png"
_WIDE, _NARROW = (1440, 900), (420, 900)
_LISTS = ("statements", "tables", "nodes", "sessions", "events", "settings")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.dashboard.screenshots")
    parser.add_argument("--seconds", type=float, default=100, help="how long the shop is open")
    parser.add_argument("--folder", type=Path, help="for pictures of everything")
    given = parser.parse_args()
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        server = stack.enter_context(PrivateMariaDB(Path(folder, "mariadb")))
        nodes = [
            stack.enter_context(PrivateMemcached(Path(folder, f"memcached-{n}"))) for n in range(2)
        ]
        addresses = tuple(node.address for node in nodes)
        proxy = PrivateSqlcache(
            Path(folder, "sqlcache"), server.service_url, addresses, proxy__workers=2, **PATIENT
        )
        stack.enter_context(proxy)
        browser = stack.enter_context(Browser())
        server.sql("CREATE DATABASE shop")
        page = browser.open(proxy.admin_port, size=_WIDE)
        stack.enter_context(Shop(server, proxy, "shop"))
        end = time.monotonic() + given.seconds
        while time.monotonic() < end:
            page.wait_for_timeout(500)  # the page's own events go on meanwhile
        if given.folder is None:
            page.screenshot(path=PICTURE)
        else:
            given.folder.mkdir(parents=True, exist_ok=True)
            _take_all(page, given.folder)


def _take_all(page: Page, folder: Path) -> None:
    for scheme in ("light", "dark"):
        page.select_option("#theme", scheme)
        for name in _LISTS:
            tab = page.locator(f"#tab-{name}")
            if tab.is_visible():
                tab.click()
                page.wait_for_timeout(600)
                page.screenshot(path=folder / f"{name}-{scheme}.png")
        page.click("#tab-statements")
    page.get_by_role("button", name="Explain: SELECT id").first.click()
    page.wait_for_timeout(600)
    page.screenshot(path=folder / "explain-dark.png")
    page.keyboard.press("Escape")
    page.select_option("#theme", "light")
    page.click("#open-flush")
    page.screenshot(path=folder / "flush-light.png")
    page.keyboard.press("Escape")
    page.set_viewport_size({"width": _NARROW[0], "height": _NARROW[1]})
    page.wait_for_timeout(600)
    page.screenshot(path=folder / "narrow-light.png", full_page=True)


if __name__ == "__main__":
    main()
