"""How many files, sockets among them, this process may have open."""

import resource
from typing import Final

_KEPT_FREE: Final = 200
"""For the admin door, which may have half of them, the doors themselves, memcached, sqlcache's own
connections and who is being refused."""

_OF_A_SESSION: Final = 2


def raise_limit() -> None:
    """Raises the soft limit, 1024 on most machines, to the hard one, as far as the system lets."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        return  # where the hard one is no number the kernel takes: it stays as it is


def most_sessions() -> int:
    """For how many sessions at once there are files, at least 1."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        soft = 1 << 20
    return max(1, (soft - _KEPT_FREE) // _OF_A_SESSION)
