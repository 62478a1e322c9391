"""aiomysql, which everything here imports from this place.

As it is imported it asks for the name of the process's user, and fails where there is none: in a
container under a number that no account has, as of Python 3.13.
"""

import getpass
import os
from typing import Any

try:
    getpass.getuser()
except (KeyError, OSError):
    os.environ["LOGNAME"] = "sqlcache"
    try:
        import aiomysql as aiomysql
    finally:
        del os.environ["LOGNAME"]
else:
    import aiomysql as aiomysql

FieldDescriptorPacket = aiomysql.connection.FieldDescriptorPacket
MysqlPacket = aiomysql.connection.MysqlPacket
MySQLResult = aiomysql.connection.MySQLResult


class DriverConnection(aiomysql.Connection):  # type: ignore[misc]  # it has no type information
    """A connection of aiomysql that can be forgotten after the end of its event loop. By itself it
    would have that loop close it, and fail amid the collection of garbage."""

    _reader: Any
    _writer: Any

    def close(self) -> None:
        """Closes it, at once."""
        if self._loop.is_closed():
            self._reader = self._writer = None
        else:
            super().close()


__all__ = [
    "DriverConnection",
    "FieldDescriptorPacket",
    "MySQLResult",
    "MysqlPacket",
    "aiomysql",
]
