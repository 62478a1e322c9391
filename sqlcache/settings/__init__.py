"""Every setting: its name, unit, limits and default. `sources` has where values come from.

- Names carry their units (`_s`, `_bytes`); a number of bytes may be given as `64MiB`, too.
- No message, `repr` or log line ever holds a password.
- Settings never change after they were loaded, others may take their place; a process that starts
  others hands them on as is.

Each section is in the module of its name, and so are the lists, `rules` and `routines`. What all of
them have is in `section`, what values can be in `values`; `Settings` is the whole.
"""

import sys
from collections.abc import Iterator, Mapping
from typing import Final, Self

from pydantic import model_validator

from sqlcache.process import cgroup
from sqlcache.settings.admin import AdminSettings
from sqlcache.settings.binlog import BinlogSettings
from sqlcache.settings.cache import CacheSettings
from sqlcache.settings.log import LogSettings
from sqlcache.settings.memcached import MemcachedSettings
from sqlcache.settings.proxy import ProxySettings
from sqlcache.settings.routines import RoutineSettings
from sqlcache.settings.rules import RuleSettings
from sqlcache.settings.section import Section
from sqlcache.settings.upstream import UpstreamSettings
from sqlcache.settings.values import HostPort, MySQLUrl

__all__ = [
    "LISTS",
    "HostPort",
    "MemcachedSettings",
    "MySQLUrl",
    "RoutineSettings",
    "RuleSettings",
    "Settings",
    "UpstreamSettings",
]

LISTS: Final = ("rules", "routines")
"""Sections that may be given any number of times."""

_NEAR_BYTES: Final = 67_108_864
_MEMORY_BYTES: Final = 268_435_456
_LARGEST_ENTRY_SHARE: Final = 4
_STATEMENTS_BYTES: Final = 100_663_296
_LEAST_STATEMENTS_BYTES: Final = 1_048_576
_KEPT_BYTES: Final = 256 << 20
_PROCESS_BYTES: Final = 72_000_000
"""What a process takes that holds nothing yet; `make bench` measures it."""
_TRANSACTIONS_BYTES: Final = 64 << 20


def _free_bytes(workers: int) -> int:
    """What all processes together may hold: the limit without what they take themselves, also the
    parent of several; where that is nearly all, a quarter of the limit."""
    limit = cgroup.memory_limit_bytes() or sys.maxsize
    processes = workers + (workers > 1)
    return max(limit - processes * _PROCESS_BYTES, limit // 4)


class Settings(Section):
    """All settings, a section a package."""

    proxy: ProxySettings = ProxySettings()
    upstream: UpstreamSettings
    memcached: MemcachedSettings
    cache: CacheSettings = CacheSettings()
    binlog: BinlogSettings = BinlogSettings()
    admin: AdminSettings = AdminSettings()
    log: LogSettings = LogSettings()
    rules: tuple[RuleSettings, ...] = ()
    routines: tuple[RoutineSettings, ...] = ()

    @model_validator(mode="after")
    def _memory_is_one_process(self) -> Self:
        if self.memcached.in_memory and self.workers > 1:
            raise ValueError(
                "memcached.nodes = memory is the store of one process:"
                " expected proxy.workers = 1, or memcached nodes"
            )
        return self

    @model_validator(mode="after")
    def _routines_are_apart(self) -> Self:
        """Else it is not known which of them counts."""
        declared: dict[tuple[str, str], int] = {}
        for number, routine in enumerate(self.routines):
            schema, _, name = routine.name.rpartition(".")
            before = declared.setdefault((schema, name.lower()), number)
            if before != number:
                raise ValueError(
                    f"routines[{number}].name = {routine.name}: expected another name than"
                    f" routines[{before}] has, which declares all that it does"
                )
        return self

    @model_validator(mode="after")
    def _doors_are_apart(self) -> Self:
        """Else who takes over would wait for ever for the admin address to be free."""
        address = self.proxy.listen
        if address.port and address == self.admin.listen:
            raise ValueError(
                f"admin.listen = {address}: expected another address than proxy.listen has"
            )
        return self

    @property
    def workers(self) -> int:
        """How many processes serve."""
        return self.automatic()["proxy.workers"]

    @property
    def near_bytes(self) -> int:
        """What each process may keep of entries."""
        return self.automatic()["cache.near_bytes"]

    @property
    def statements_bytes(self) -> int:
        """What each process may remember of statements."""
        return self.automatic()["proxy.statements_bytes"]

    @property
    def transactions_bytes(self) -> int:
        """What each process may remember of what open transactions have read; in shadow mode, where
        they are answered from nothing, that is nothing."""
        return 0 if self.cache.mode == "shadow" else self.automatic()["proxy.transactions_bytes"]

    @property
    def memory_bytes(self) -> int:
        """What the embedded store may hold."""
        return self.automatic()["memcached.memory_bytes"]

    @property
    def max_entry_bytes(self) -> int:
        """The longest response that is stored."""
        longest = self.cache.max_entry_bytes
        if self.memcached.in_memory:
            longest = min(longest, self.memory_bytes // _LARGEST_ENTRY_SHARE)
        return longest

    @property
    def kept_bytes(self) -> int:
        """What each process may hold of answers that are to be stored, while they go by, and of
        long ones from the cache that clients have not read: half of it each."""
        workers = self.workers
        return min(_KEPT_BYTES, _free_bytes(workers) // 8 // workers)

    def automatic(self) -> Mapping[str, int]:
        """By their paths, the settings that may be `auto`, as numbers for this machine."""
        workers = self.proxy.workers or (1 if self.memcached.in_memory else cgroup.cpus())
        free = _free_bytes(workers)
        near, memory = self.cache.near_bytes, self.memcached.memory_bytes
        statements = self.proxy.statements_bytes
        if statements is None:
            share = max(free // 8 // workers, _LEAST_STATEMENTS_BYTES)
            statements = min(_STATEMENTS_BYTES, share)
        if near is None:
            # Beside the embedded store it has each entry once more, for a tenth of CPU.
            near = min(_NEAR_BYTES, free // (8 if self.memcached.in_memory else 4) // workers)
        transactions = self.proxy.transactions_bytes
        if transactions is None:
            transactions = min(_TRANSACTIONS_BYTES, free // 16 // workers)
        return {
            "proxy.workers": workers,
            "proxy.statements_bytes": statements,
            "proxy.transactions_bytes": transactions,
            "cache.near_bytes": near,
            "memcached.memory_bytes": min(_MEMORY_BYTES, free // 2) if memory is None else memory,
        }

    def items(self) -> Iterator[tuple[str, object]]:
        """Every setting as (path, value), such as `cache.ttl_s`; printing a value is safe."""
        automatic = self.automatic()
        for section in type(self).model_fields:
            values = getattr(self, section)
            if section in LISTS:
                for number, each in enumerate(values):
                    given = each.model_dump(by_alias=True, exclude_defaults=True)
                    yield f"{section}[{number}]", given
                continue
            for name in type(values).model_fields:
                path, value = f"{section}.{name}", getattr(values, name)
                here = automatic.get(path) if value is None else None
                yield path, value if here is None else f"auto, here {here}"
