"""SIGHUP: the settings are read again, and what may change in a running process is taken from them.

- Log lines, rules, TLS and the admin door's token apply at once; a certificate and a token also
  where only their files have changed.
- All else is as it was at the start, and one line names what needs a restart. So a worker that is
  started anew goes by the same as the others.
- What cannot be used changes nothing, and is said.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from sqlcache.errors import ConfigError
from sqlcache.process import logs
from sqlcache.process.systemd import Systemd
from sqlcache.settings import LISTS, Settings

log = logging.getLogger(__name__)

AT_ONCE: Final[dict[str, tuple[str, ...]]] = {
    "proxy": ("tls_certificate", "tls_key", "tls_required"),
    "upstream": ("tls", "tls_ca", "tls_certificate", "tls_key"),
    "admin": ("token", "token_file"),
    "log": ("level", "format", "slow_miss_ms"),
    "rules": (),
}
"""By section, the settings that a running process takes from its file; of a list all of it."""


class Reloadable(Protocol):
    """Who goes by settings."""

    async def use(self, settings: Settings) -> None:
        """Goes by these from here on. Raises: ConfigError, and goes on as before."""


def changed(running: Settings, read: Settings) -> Iterator[tuple[str, bool]]:
    """The path of each setting that differs, and whether it may change in a running process."""
    for section in Settings.model_fields:
        before, now = getattr(running, section), getattr(read, section)
        if section in LISTS:
            if before != now:
                yield section, section in AT_ONCE
            continue
        for name in type(before).model_fields:
            if before.differs(now, name):
                yield f"{section}.{name}", name in AT_ONCE.get(section, ())


def taken_from(running: Settings, read: Settings) -> Settings:
    """The settings of a running process with those of another reading that apply at once."""
    sections = {}
    for section, names in AT_ONCE.items():
        before, now = getattr(running, section), getattr(read, section)
        if section in LISTS:
            sections[section] = now
            continue
        others = set(type(now).model_fields) - set(names)
        stay = {name: getattr(before, name) for name in others}
        sections[section] = now.model_copy(update=stay)
    return running.model_copy(update=sections)


def check(settings: Settings, *, made_certificate: bool) -> None:
    """`made_certificate`: sqlcache has one of its own, since the start. Raises: ConfigError where
    rules or files of TLS are of no use, or clients that count on TLS would have none."""
    from sqlcache.rules import policy_of  # only here: the parent of workers needs none of it else
    from sqlcache.tls import client_tls, upstream_tls

    proxy = settings.proxy
    counts_on_tls = proxy.tls_auto or proxy.tls_required
    if proxy.tls_certificate is None and counts_on_tls and not made_certificate:
        raise ConfigError(
            "proxy.tls_certificate: is not set, and sqlcache makes one of its own at a start alone:"
            " expected one, or a restart"
        )
    policy_of(settings)
    client_tls(settings)
    upstream_tls(settings)


class Reloading:
    """Reloads whenever it is asked to, one at a time. `read` reads the settings, as at the start,
    and may raise ConfigError. `asked` is set by who asks; also before `run`, which then begins with
    it."""

    def __init__(
        self,
        settings: Settings,
        read: Callable[[], Settings],
        app: Reloadable,
        systemd: Systemd,
        asked: asyncio.Event,
    ) -> None:
        self._running = settings
        self._made_certificate = settings.proxy.makes_certificate
        self._read = read
        self._app = app
        self._systemd = systemd
        self._asked = asked
        self._alone = asyncio.Lock()

    async def run(self, status: str) -> None:
        """Never returns. `status` is what the service manager is to hear of it when it is done."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            self._systemd.reloading()
            try:
                await self.reload()
            except ConfigError as error:
                for line in str(error).splitlines():
                    log.error("settings not reloaded, they are as before reason=%s", line)
            except Exception:
                log.exception("settings not reloaded, they are as before")
            self._systemd.ready(status)

    @property
    def settings(self) -> Settings:
        """Those that it goes by now."""
        return self._running

    async def reload(self) -> list[tuple[str, bool]]:
        """The path of each setting that differs now from those at work, and whether it applies
        already, or needs a restart. Raises: ConfigError, and nothing has changed."""
        async with self._alone:
            return await self._reload()

    async def _reload(self) -> list[tuple[str, bool]]:
        read = self._read()
        settings = taken_from(self._running, read)
        check(settings, made_certificate=self._made_certificate)
        differing = list(changed(self._running, read))
        await self._app.use(settings)
        logs.configure(settings.log.level, settings.log.format)
        self._running = settings
        applied = ",".join(path for path, at_once in differing if at_once)
        log.info("settings reloaded changed=%s", applied or "none")
        if late := ",".join(path for path, at_once in differing if not at_once):
            log.warning("settings that need a restart settings=%s", late)
        return differing
