"""The exception tree: every error sqlcache raises on purpose, and what becomes of it."""

import errno
from typing import Final

_WRONG: Final = frozenset({errno.EACCES, errno.EPERM})


class SqlcacheError(Exception):
    """Anything sqlcache raises on purpose."""


class ConfigError(SqlcacheError):
    """A setting is wrong: names the setting, its value and what was expected."""


class NotNow(ConfigError):
    """What a setting names cannot be had, and nothing says that the setting is wrong: the same may
    be had a moment later."""


class ProtocolError(SqlcacheError):
    """A peer sent bytes the MySQL or memcached protocol does not allow: its connection ends."""


class ConnectionLost(SqlcacheError):
    """A peer's connection ended, cleanly or not, while something was still expected of it."""


class UpstreamError(SqlcacheError):
    """MySQL refused a statement of sqlcache's own, or could not be reached."""


class AccountRefused(UpstreamError):
    """MySQL is there and does not let in sqlcache's own account; it may let in clients."""


class CacheUnavailable(SqlcacheError):
    """memcached did not answer in time: the caller bypasses the cache; a client never sees this."""


class WriteRefused(SqlcacheError):
    """A write was not sent, because its tags cannot be reached: the client is told so."""


class SqlSyntaxError(SqlcacheError):
    """A statement's text cannot be split into tokens, such as one with an unclosed string."""


class UsageError(SqlcacheError, TypeError):
    """The Python API is used in a way that cannot work: says how, and what to do instead."""


class BinlogGap(SqlcacheError):
    """What was changed is not known from some place of the binary log on: everything is forgotten,
    and the log followed from its end."""


class StreamEnded(ConnectionLost):
    """MySQL ended the stream of its binary log, as it does when it stops."""


class StreamRefused(UpstreamError):
    """MySQL does not send its binary log, or no more of it, by the error `code`."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(f"({code}) {why}")
        self.code = code


def cannot_listen(setting: str, address: object, error: OSError, at: object = "") -> ConfigError:
    """Why the address of a setting cannot be had: others may have it yet, or the machine not, or no
    name server answers. A right that is lacking comes by no waiting. `at`: for which of those that
    a name may mean."""
    kind = ConfigError if error.errno in _WRONG else NotNow
    where = "" if str(at) in str(address) else f" at {at}"
    return kind(f"{setting} = {address}: cannot listen{where}: {error.strerror or error}")
