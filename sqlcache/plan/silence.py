"""For how long a session may ask the server nothing before that ends it."""

import math
from collections.abc import Callable, Mapping

_END_THE_IDLE = (
    "idle_transaction_timeout",
    "idle_readonly_transaction_timeout",
    "idle_write_transaction_timeout",
)
"""MariaDB's for transactions, none where they are 0. They count here outside of these as well: so
nobody has to follow which transaction comes next."""
_WAIT = "wait_timeout"
_AT_LOGIN = "interactive_timeout"
"""What `wait_timeout` is as a client logs in that says it is interactive."""


def longest_s(
    setting: Callable[[str], str], own: Mapping[str, str], of_login: Mapping[str, str]
) -> float:
    """In seconds; infinity where nothing is told of it, and 0 where what is told is no number.
    `of_login`: the globals, of a client that is interactive. Whether it still has what it began
    with is not known, but where it has set that: COM_RESET_CONNECTION makes it the global one."""
    limits = [_seconds(setting(_WAIT))]
    limits += [_seconds(told) for told in map(setting, _END_THE_IDLE) if told != "0"]
    if _WAIT not in own:
        limits.append(_seconds(of_login.get(_AT_LOGIN, "")))
    return min(limits)


def _seconds(told: str) -> float:
    try:
        return float(told) if told else math.inf
    except ValueError:
        return 0.0
