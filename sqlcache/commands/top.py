"""`sqlcache top`: a page about a running sqlcache, in the terminal."""

from __future__ import annotations

import sys

from sqlcache.errors import SqlcacheError
from sqlcache.settings import Settings


def run(settings: Settings) -> int:
    """Shows the page until it is left; returns the process's exit code.

    Raises: ConfigError without an address; SqlcacheError without textual, or a terminal.
    """
    try:
        from sqlcache.commands.top_page import TopPage  # only here: it wants the extra
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] != "textual":
            raise
        # Not just any pip: textual is to come where this sqlcache is.
        pip = f"{sys.executable} -m pip install 'textual>=8'"
        raise SqlcacheError(f"top: textual is not installed: {pip}") from None
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise SqlcacheError(
            "top: expected a terminal; sqlcache stats --statements prints the list anywhere"
        )
    page = TopPage(settings)
    page.run()
    return page.return_code or 0
