"""For how long a session may ask the server nothing before that ends it."""

import math
from collections.abc import Callable, Mapping

_END_THE_IDLE = (
    "idle_transaction_timeout",
    "idle_readonly_transaction_timeout",
    "idle_write_transaction_timeout",
)
"""MariaDB's for transactions, none where they are not above 0. They count here outside of these as
well: so nobody has to follow which transaction comes next."""
_WAIT = "wait_timeout"
_LEAST_WAIT_S = 1.0
"""What the server takes for less than that."""
_AT_LOGIN = "interactive_timeout"
"""What `wait_timeout` is as a client logs in that says it is interactive."""


def longest_s(
    setting: Callable[[str], str], own: Mapping[str, str], of_login: Mapping[str, str]
) -> float:
    """In seconds; infinity where nothing is told of it, and 0 where what is told is no number.
    `of_login`: the globals, of a client that is interactive. Whether it still has what it began
    with is not known, but where it has set that: COM_RESET_CONNECTION makes it the global one."""
    limits = [_wait_s(setting(_WAIT))]
    if _WAIT not in own:
        limits.append(_wait_s(of_login.get(_AT_LOGIN, "")))
    limits += map(_idle_s, map(setting, _END_THE_IDLE))
    return min(limits)


def _wait_s(told: str) -> float:
    return max(float(told), _LEAST_WAIT_S) if _is_number(told) else _unknown_s(told)


def _idle_s(told: str) -> float:
    if not _is_number(told):
        return _unknown_s(told)
    return seconds if (seconds := float(told)) > 0 else math.inf


def _unknown_s(told: str) -> float:
    return 0.0 if told else math.inf


def _is_number(told: str) -> bool:
    return told.isascii() and told.removeprefix("-").isdigit()
