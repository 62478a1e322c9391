"""Accounts that may ask the server so many questions an hour, by MAX_QUERIES_PER_HOUR.

A hit is none of these, and what sqlcache asks on a session's connection is one. So sessions of such
accounts have no hits, and are asked no more than is needed to know what their statements write.
"""

from collections.abc import Iterable

from sqlcache.plan.rights import LONGEST_NAME
from sqlcache.plan.variables import (
    NEW_SESSIONS_RIGHTS,
    PLACE,
    SEVERAL_ACCOUNTS,
    Globals,
)

LIMITED_ACCOUNTS = "@limited_accounts"
"""Among the globals, no variable: their names, in order, with zeros before, between and after them.
"""

_OF_READS_ALONE = frozenset(
    {
        LIMITED_ACCOUNTS,
        NEW_SESSIONS_RIGHTS,
        PLACE,
        SEVERAL_ACCOUNTS,
        "auto_increment_increment",
        "auto_increment_offset",
        "cte_max_recursion_depth",
        "eq_range_index_dive_limit",
        "group_concat_max_len",
        "idle_readonly_transaction_timeout",
        "idle_transaction_timeout",
        "idle_write_transaction_timeout",
        "identity",
        "innodb_lock_wait_timeout",
        "insert_id",
        "interactive_timeout",
        "join_buffer_size",
        "join_cache_level",
        "last_insert_id",
        "lock_wait_timeout",
        "long_query_time",
        "low_priority_updates",
        "max_execution_time",
        "max_heap_table_size",
        "max_join_size",
        "max_length_for_sort_data",
        "max_statement_time",
        "net_read_timeout",
        "net_retry_count",
        "net_write_timeout",
        "profiling_history_size",
        "pseudo_thread_id",
        "rand_seed1",
        "rand_seed2",
        "range_optimizer_max_mem_size",
        "read_rnd_buffer_size",
        "sort_buffer_size",
        "sql_big_selects",
        "sql_select_limit",
        "timestamp",
        "tmp_table_size",
        "unique_checks",
        "wait_timeout",
    }
)
_PLANS = "optimizer_"
"""Begins the names of others."""
_ANYBODYS = "\0\0"


def told(accounts: Iterable[str]) -> str:
    """The value of `LIMITED_ACCOUNTS`; "" where there are none."""
    names = sorted(accounts)
    return "\0".join(["", *names, ""]) if names else ""


def is_limited(globals_: Globals, user: bytes) -> bool:
    """Whether who logs in with this name may be such an account: whoever it is, where one without a
    name is one, and where the server may read the name as another."""
    limited, name = globals_.named.get(LIMITED_ACCOUNTS, ""), user.decode("utf-8", "replace")
    if not limited or limited.startswith(_ANYBODYS):
        return bool(limited)
    return not name.isascii() or len(name) > LONGEST_NAME or f"\0{name}\0" in limited


def shape_reads_alone(names: Iterable[str]) -> bool:
    """Whether these settings change nothing but what queries find or writes put there, and how long
    that takes: neither how texts are read, nor which tables are known to be written."""
    return all(name in _OF_READS_ALONE or name.startswith(_PLANS) for name in names)


def write_alike(one: Globals, other: Globals) -> bool:
    """Whether sessions that begin with either differ in such settings alone."""
    names = one.named.keys() | other.named.keys()
    return shape_reads_alone(n for n in names if one.named.get(n) != other.named.get(n))
