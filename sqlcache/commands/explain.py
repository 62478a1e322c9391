"""`sqlcache explain`: what becomes of a statement by the settings and the catalog of now."""

import asyncio

from sqlcache.app import App
from sqlcache.commands.terminal import printable_lines
from sqlcache.plan.explanations import explain, new_session
from sqlcache.settings import Settings


def run(settings: Settings, text: str, schema: str | None, user: str) -> int:
    """Prints the explanation; returns the process's exit code.

    Raises: UpstreamError where the catalog cannot be read, ConfigError for what is no statement.
    """
    return asyncio.run(_run(settings, text, schema, user))


async def _run(settings: Settings, text: str, schema: str | None, user: str) -> int:
    app = App(settings)
    try:
        await app.service.check()
        await app.planner.keeper.refresh()
        state = new_session(app.planner, schema, user)
        for each in await explain(app.planner, text.encode("utf-8", "surrogateescape"), state):
            print(printable_lines(str(each)))
    finally:
        await app.stop()
    return 0
