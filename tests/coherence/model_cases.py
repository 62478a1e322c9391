"""Small cases, to be gone through in every order; and what chance draws from, for long searches."""

from collections.abc import Iterator
from dataclasses import replace

from tests.coherence.model_explore import Case
from tests.coherence.model_rows import JOINS
from tests.coherence.model_rows import QUERIES as ROW_QUERIES
from tests.coherence.model_search import Profile
from tests.coherence.model_world import (
    DEADLINE_S,
    LONGEST_WAIT_S,
    OUTAGE_S,
    PLAIN,
    REACH_S,
    Action,
    Shape,
)

LEASE_S = 0.1


def _read(process: str, query: str, name: str) -> Action:
    return "read", process, query, f"{process}:{name}"


def _write(process: str, what: str, name: str, style: str = "plain") -> Action:
    return "write", process, what, style, f"{process}:{name}"


_FILLED: Action = ("hurry", *_read("0", "a", "before"))
_OUTDATED: tuple[Action, ...] = (_FILLED, ("hurry", *_write("0", "a", "bump")))
_LONG = 2 * DEADLINE_S + 2
_OUTAGE: tuple[Action, ...] = (("pass", 3.0), ("settle",), ("rejoin", "n0"), ("pass", 12.0))
_BACK_BEFORE_THE_WRITER: tuple[Action, ...] = (
    ("settle",),
    ("freeze", "0"),
    ("rejoin", "n0"),
    ("pass", 1.0),
    ("thaw", "0"),
    ("pass", 12.0),
)
_TWO_FILLED: tuple[Action, ...] = (_FILLED, ("hurry", *_read("1", "a", "before")))
_STRANGER: tuple[Action, ...] = (
    *(*_TWO_FILLED, ("stop", "2"), ("settle",), ("pass", 0.5), ("stall", "n0"), ("start", "2")),
    *(("pass", 3.0), _write("2", "a", "w"), ("pass", 3.0), ("settle",)),
)
"""Process 2 has started while the node was away, and has written without it."""
_UNTIL_FENCES_LAPSE: tuple[Action, ...] = (("pass", _LONG), _read("1", "a", "after"), ("settle",))
_IN_QUARANTINE_S = OUTAGE_S / 2 + REACH_S - 0.1
_MEANWHILE: tuple[Action, ...] = (
    ("freeze", "0"),
    ("rejoin", "n0"),
    ("pass", _IN_QUARANTINE_S),
)
_ALL_DIE: tuple[Action, ...] = (
    ("settle",),
    ("kill", "0"),
    ("kill", "1"),
    ("rejoin", "n0"),
    ("start", "1"),
    ("pass", OUTAGE_S / 2 + 0.1),
)
_LOSING = Shape(loses_fences=True)
_SHARED_AND_LOST: tuple[Action, ...] = (
    _FILLED,
    _write("0", "a", "w", "straight"),
    _write("0", "a", "v", "straight"),
    ("pass", 0.05),
    ("evict", "tag s.a"),
    _read("1", "a", "r"),
    ("pass", 0.05),
)
_RESTARTED: tuple[Action, ...] = (("freeze", "0"), ("restart", "n0"), ("pass", 0.6))


def _again(wire: str) -> tuple[Action, ...]:
    """The process connects anew, and tries again what it had not heard of."""
    return ("tick", 0.1), ("execute", wire), ("deliver", wire), ("tick", 0.03)


_LEASES = Shape(processes=3, witness=False, near_bytes=100_000, read_lease_s=LEASE_S)
_LEASES_AND_LOSSES = replace(_LEASES, loses_fences=True)
_WINDOW: tuple[Action, ...] = (
    ("hurry", *_read("1", "a", "fill")),
    ("hurry", *_write("0", "a", "before")),
    ("pass", 2 * LEASE_S),
    ("settle",),
    ("pass", 2 * LEASE_S + 0.25),
    ("hurry", *_read("1", "a", "fill again")),
    ("hurry", *_read("1", "a", "promise")),
    ("hurry", *_read("1", "a", "window")),
)
"""Process 1 has promised, and its window is open. Process 0 beats 0.35 s later, and each second."""


def _hits_until_a_beat_is_sent(process: str) -> Iterator[Action]:
    """From 0.95 s after its fence was raised on; the node has not carried it out yet."""
    for number in range(20):
        yield ("hurry", *_read(process, "a", f"hit {number}"))
        yield ("tick", 0.02)


def _carried_out(process: str, node: str) -> Iterator[Action]:
    """All that the process has asked the node, on whichever connection."""
    for kind in ("execute", "deliver"):
        for number in range(1, 10):
            yield kind, f"{process}-{node}-{number}"


def _row_write(process: str, what: str, name: str, style: str = "narrow") -> Action:
    return _write(process, what, name, style)


_ROWS = Shape(rows=True)
_ROWS_LOST = Shape(rows=True, loses_fences=True)
_SLOTS: tuple[Action, ...] = (
    ("hurry", *_read("0", "r", "first")),
    *(("slot", "0", "i"), ("settle",), ("slot", "0", "k"), ("settle",)),
    *(("slot", "0", "u"), ("settle",), ("slot", "0", "j"), ("settle",)),
    *(("hurry", *_read("1", query, f"first {query}")) for query in ("r", JOINS[0])),
    ("know",),
    *(("hurry", *_read("0", query, f"before {query}")) for query in ROW_QUERIES),
    *(("hurry", *_read("0", query, f"before again {query}")) for query in JOINS),
)
"""All slots are in use, in logs that are known for long; and all is stored."""
_ROW_FAULTS: tuple[Action, ...] = (
    *(("evict", "tag s.r"), ("evict", "bucket k1"), ("break", "1-n0-1")),
    *(("lose", "1:w.0"), ("kill", "1")),
)

_PROBED: tuple[Action, ...] = (
    ("hurry", *_read("0", "r", "first")),
    *(("slot", "0", "i"), ("settle",), ("slot", "0", "k"), ("settle",)),
    *(("hurry", *_read("1", "r", "first")), ("know",)),
    *(("hurry", *_read("0", query, f"before {query}")) for query in ("i0", "i1", "k0", "k1")),
)
"""Two slots are in use, in a log that is known for long; and all is stored."""


def _stored_anew(query: str, *meanwhile: Action) -> tuple[Action, ...]:
    """A table's log is lost, and made anew by process 1, which has its answers to this query."""
    return (
        *(("evict", "tag s.r"), ("hurry", *_read("1", "r", "anew"))),
        *(("slot", "1", "k"), ("step", "1-n0-1", 99)),
        *meanwhile,
        *(("hurry", *_read("1", query, f"anew {number}")) for number in range(3)),
    )


_ROWS_PROBED = replace(_ROWS_LOST, outlived=False)
_ROWS_LINGERING = replace(_ROWS, lingers=True)
_ALL_ROWS: tuple[Action, ...] = (
    ("pass", 0.01),
    *(("hurry", *_read("0", query, f"after {query}")) for query in ROW_QUERIES),
)

CASES = {
    "a row is written, and others are read": Case(
        before=_SLOTS,
        sessions=(
            (_row_write("1", "set i0", "w"),),
            (_read("0", "i0", "r"),),
            (_read("0", "k1", "s"),),
        ),
        shape=_ROWS,
    ),
    "a row is written that is near": Case(
        before=(
            *_SLOTS,
            *(("hurry", *_read("0", query, f"near {query}")) for query in ROW_QUERIES),
        ),
        sessions=(
            (_row_write("1", "set i0", "w"),),
            (_read("0", "i0", "r"), _read("0", "i0", "s")),
        ),
        after=(("hurry", *_read("0", "i0", "t")), ("hurry", *_read("0", "k1", "u"))),
        shape=replace(_ROWS, near_bytes=100_000),
    ),
    "a table is written whose rows are near": Case(
        before=(*_SLOTS, ("hurry", *_read("0", "i0", "near"))),
        sessions=(
            (_write("1", "set r", "w"),),
            (_read("0", "i0", "r"), _read("0", "i0", "s")),
        ),
        after=(("hurry", *_read("0", "i0", "t")),),
        shape=replace(_ROWS, near_bytes=100_000),
    ),
    "a row is written that is near, and the log anew": Case(
        before=(*_SLOTS, ("hurry", *_read("0", "i0", "near"))),
        sessions=(
            (("hurry", *_row_write("1", "set i0", "w")), ("compact", "1", "i")),
            (_read("0", "i0", "r"), _read("0", "i0", "s")),
        ),
        after=(("settle",), ("hurry", *_read("0", "i0", "t"))),
        shape=replace(_ROWS, near_bytes=100_000),
    ),
    "a column is written, and read by some": Case(
        before=_SLOTS,
        sessions=(
            (_row_write("1", "set i0", "w"), _row_write("1", "move k0", "x")),
            (_read("0", "u", "r"),),
            (_read("0", "u", "s"), _read("0", "k0", "t")),
        ),
        after=(("hurry", *_read("0", "u", "v")),),
        shape=_ROWS,
    ),
    "a row of a list is written": Case(
        before=_SLOTS,
        sessions=(
            (_row_write("1", "set i0", "w"),),
            (_read("0", "i1i0", "r"),),
            (_read("0", "i0", "s"),),
        ),
        after=(("hurry", *_read("0", "i1i0", "t")),),
        shape=_ROWS,
    ),
    "rows of two tables are read together": Case(
        before=_SLOTS,
        sessions=(
            (_row_write("1", "set j0", "w"),),
            (_read("0", "k1j0", "r"),),
            (_read("0", "i0j1", "s"),),
        ),
        after=(("hurry", *_read("0", "k1j0", "t")),),
        shape=_ROWS,
    ),
    "rows of two tables are written at once": Case(
        before=_SLOTS,
        sessions=(
            (_row_write("1", "set j1, move k0", "w"),),
            (_read("0", "k1j0", "r"),),
            (_read("0", "i0j1", "s"),),
        ),
        after=(("hurry", *_read("0", "k1j0", "t")), ("hurry", *_read("0", "i0j1", "u"))),
        shape=_ROWS,
    ),
    "rows of two tables are near": Case(
        before=(
            *_SLOTS,
            *(("hurry", *_read("0", query, f"near {query}")) for query in ROW_QUERIES),
        ),
        sessions=(
            (_row_write("1", "set j0", "w"),),
            (_read("0", "k1j0", "r"), _read("0", "k1j0", "s")),
        ),
        after=(("hurry", *_read("0", "k1j0", "t")), ("hurry", *_read("0", "i0j1", "u"))),
        shape=replace(_ROWS, near_bytes=100_000),
    ),
    "a row comes that the server numbers, and is read with others": Case(
        before=(
            *(*_SLOTS, ("hurry", *_row_write("1", "drop i0", "drop"))),
            *(("hurry", *_read("0", "i0j1", f"none {number}")) for number in range(3)),
            ("hurry", *_row_write("1", "new k0", "new")),
        ),
        sessions=((_read("0", "i0j1", "r"),), (_read("0", "k1j0", "s"),)),
        shape=_ROWS,
    ),
    "rows move, and are read where they come from and go to": Case(
        before=_SLOTS,
        sessions=(
            (_row_write("1", "move k0", "w"),),
            (_read("0", "k0", "r"),),
            (_read("0", "k1", "s"),),
        ),
        shape=_ROWS,
    ),
    "a transaction writes rows by different columns": Case(
        before=_SLOTS,
        sessions=(
            (_row_write("1", "set i0, set k1", "w"),),
            (_read("0", "i1", "r"),),
            (_read("0", "k0", "s"),),
        ),
        after=(("hurry", *_read("0", "i0", "t")), ("hurry", *_read("0", "k1", "u"))),
        shape=_ROWS,
    ),
    "a transaction writes rows and another table": Case(
        before=_SLOTS,
        sessions=(
            (_row_write("1", "set k1, a", "w"),),
            (_read("0", "k1", "r"),),
            (_read("0", "a", "s"),),
        ),
        shape=_ROWS,
    ),
    "a row moves to where its text does not tell": Case(
        before=_SLOTS,
        sessions=((_row_write("1", "move i0", "w"),), (_read("0", "k1", "r"),)),
        shape=_ROWS,
    ),
    "two writes of rows side by side": Case(
        before=_SLOTS,
        sessions=(
            (_row_write("1", "set i0", "w"),),
            (_row_write("1", "move k0", "v"),),
            (_read("0", "k1", "r"),),
        ),
        after=(("hurry", *_read("0", "i0", "s")),),
        shape=_ROWS,
    ),
    "writes of rows share a fence": Case(
        before=(*_SLOTS, ("pass", 0.06)),
        sessions=(
            (_row_write("1", "set k0", "w"),),
            (_row_write("1", "set k1", "v"),),
            (_read("0", "k0", "r"),),
        ),
        after=_ALL_ROWS,
        shape=_ROWS_LINGERING,
    ),
    "a write that tells no rows shares a fence with one that does": Case(
        before=(*_SLOTS, ("pass", 0.06)),
        sessions=(
            (_row_write("1", "set i0", "w"),),
            (_write("1", "set r", "v", "straight"),),
            (_read("0", "i1", "r"),),
        ),
        after=_ALL_ROWS,
        shape=_ROWS_LINGERING,
    ),
    "a fence that rows share stays for the next write": Case(
        before=(*_SLOTS, ("pass", 0.06), ("hurry", *_row_write("1", "set i0", "w"))),
        sessions=((_row_write("1", "set k1", "v"),), (_read("0", "i0", "r"),)),
        faults=(("kill", "1"), ("evict", "bucket i0"), ("evict", "tag s.r")),
        after=(*_UNTIL_FENCES_LAPSE, *_ALL_ROWS),
        shape=_ROWS_LINGERING,
    ),
    "rows that MySQL tells of share a fence": Case(
        before=(*_PROBED, ("pass", 0.06)),
        sessions=(
            (_row_write("1", "put i0k1", "w", "probed"),),
            (_row_write("1", "set i0", "v", "probed"),),
        ),
        after=_ALL_ROWS,
        shape=_ROWS_LINGERING,
    ),
    "a write of rows ends, request by request": Case(
        before=(
            *_SLOTS,
            _row_write("1", "move k0", "w"),
            ("step", "1-n0-1", 99),
            ("commit", "1:w.0"),
        ),
        sessions=((_read("0", "k1", "r"),),),
        shape=_ROWS,
        finely=True,
    ),
    "a row is written amid a fault": Case(
        before=_SLOTS,
        sessions=((_row_write("1", "move k0", "w"),), (_read("0", "k1", "r"),)),
        faults=_ROW_FAULTS,
        after=(("thaw", "1"), *_UNTIL_FENCES_LAPSE, ("hurry", *_read("0", "k1", "s"))),
        shape=_ROWS,
    ),
    "a row comes where there was none": Case(
        before=(
            *(*_SLOTS, ("hurry", *_row_write("1", "drop i0", "drop"))),
            *(("hurry", *_read("0", "i0", f"none {number}")) for number in range(3)),
            ("hurry", *_row_write("1", "add i0k1", "add")),
        ),
        sessions=((_read("0", "i0", "r"),),),
        shape=_ROWS,
    ),
    "a row comes that the server numbers": Case(
        before=(
            *(*_SLOTS, ("hurry", *_row_write("1", "drop i0", "drop"))),
            *(("hurry", *_read("0", "i0", f"none {number}")) for number in range(3)),
            *(("hurry", *_read("0", "i1", f"one {number}")) for number in range(3)),
            *(("hurry", *_read("0", "i1i0", f"some {number}")) for number in range(3)),
            ("hurry", *_row_write("1", "new k0", "new")),
        ),
        sessions=((_read("0", "i0", "r"),), (_read("0", "i1", "s"),), (_read("0", "i1i0", "t"),)),
        shape=_ROWS,
    ),
    "the end of a write of rows is lost": Case(
        before=(
            *(*_SLOTS, _row_write("1", "move k0", "w"), ("step", "1-n0-1", 99)),
            *(("commit", "1:w.0"), ("break", "1-n0-1"), ("discard", "1-n0-1"), ("pass", 2.0)),
        ),
        sessions=((_read("0", "k1", "r"),),),
        shape=_ROWS,
    ),
    "a slot comes back": Case(
        before=(
            *(*_SLOTS, ("hurry", *_row_write("1", "set r", "w")), ("evict", "tag s.r")),
            *(("hurry", *_read("1", "r", "look")), ("slot", "0", "k"), ("settle",)),
        ),
        sessions=((_read("0", "k1", "r"), _read("0", "k1", "s")),),
        shape=_ROWS,
    ),
    "rows move whose fence is lost": Case(
        before=(
            *(*_SLOTS, _row_write("1", "move k0", "w"), ("step", "1-n0-1", 99)),
            *(("evict", "tag s.r"), ("slot", "0", "k"), ("step", "0-n0-1", 99)),
        ),
        sessions=((_read("0", "k1", "r"), _read("0", "k1", "s")),),
        shape=_ROWS_LOST,
    ),
    "a row is written whose other column is asked for": Case(
        before=_PROBED,
        sessions=(
            (_row_write("1", "set i0", "w", "probed"),),
            (_read("0", "k0", "r"),),
            (_read("0", "k1", "s"),),
        ),
        after=(("hurry", *_read("0", "k0", "t")),),
        shape=_ROWS,
    ),
    "a row moves from where its text does not tell": Case(
        before=_PROBED,
        sessions=(
            (_row_write("1", "put i0k1", "w", "probed"),),
            (_read("0", "k0", "r"),),
            (_read("0", "k1", "s"),),
        ),
        after=(("hurry", *_read("0", "k0", "t")), ("hurry", *_read("0", "k1", "u"))),
        shape=_ROWS,
    ),
    "a row moves when a bucket is looked at, and its table was": Case(
        before=(
            *(*_PROBED, ("hurry", *_read("2", "r", "first")), ("know",), _read("0", "k1", "r")),
            ("execute", "0-n0-1", 4),
            *(_row_write("2", "put i0k0", "w", "probed"), ("step", "2-n0-1", 99)),
            *(("commit", "2:w.0"), ("hurry", *_row_write("1", "put i0k1", "v", "probed"))),
        ),
        sessions=(),
        after=(("hurry", *_read("1", "k1", "s")),),
        shape=replace(_ROWS, processes=3),
    ),
    "a row moves, and is near where it comes from": Case(
        before=(*_PROBED, ("hurry", *_read("0", "k0", "near"))),
        sessions=(
            (("hurry", *_row_write("1", "put i0k1", "w", "probed")),),
            (_read("0", "k0", "r"), _read("0", "k0", "s")),
        ),
        after=(("hurry", *_read("0", "k0", "t")),),
        shape=replace(_ROWS, near_bytes=100_000),
    ),
    "rows are written by a column, and others move there": Case(
        before=_PROBED,
        sessions=(
            (_row_write("1", "set k0", "w", "all probed"),),
            (_row_write("0", "put i1k0", "v", "probed"), _read("0", "i1", "r")),
        ),
        after=(("hurry", *_read("0", "i1", "s")),),
        shape=_ROWS,
    ),
    "a transaction writes rows that it moves": Case(
        before=_PROBED,
        sessions=(
            (_row_write("1", "set k1, put i0k1", "w", "all probed"),),
            (_read("0", "k0", "r"),),
            (_read("0", "i1", "s"),),
        ),
        after=(("hurry", *_read("0", "k0", "t")), ("hurry", *_read("0", "i1", "u"))),
        shape=_ROWS,
    ),
    "rows are written by a column, and one comes that the server numbers": Case(
        before=(*_PROBED, ("hurry", *_row_write("1", "drop i0", "drop"))),
        sessions=(
            (_read("0", "i0", "r"),),
            (_row_write("1", "set k0", "w", "probed"),),
            (_row_write("0", "new k0", "v"),),
        ),
        after=(("hurry", *_read("0", "i0", "s")),),
        shape=_ROWS,
    ),
    "a row moves amid a fault": Case(
        before=_PROBED,
        sessions=((_row_write("1", "put i0k1", "w", "probed"),), (_read("0", "k0", "r"),)),
        faults=(("evict", "tag s.r"), ("lose", "1:w.1")),
        after=(*_UNTIL_FENCES_LAPSE, ("hurry", *_read("0", "k0", "s"))),
        shape=_ROWS_PROBED,
    ),
    "a row moves, and its process stood still when it had asked": Case(
        before=(
            *(*_PROBED, _row_write("1", "put i0k1", "w", "probed"), ("step", "1-n0-1", 99)),
            ("freeze", "1"),
            *(
                action
                for number in range(4)
                for action in (("pass", 3.0), ("hurry", *_read("0", "k0", f"lapse {number}")))
            ),
            ("thaw", "1"),
        ),
        sessions=((_read("0", "k0", "r"),),),
        after=(("settle",), ("hurry", *_read("0", "k0", "s"))),
        shape=_ROWS,
    ),
    "a row is written amid its move, whose fence is lost": Case(
        before=(
            *(*_PROBED, _row_write("0", "move k0", "v"), ("step", "0-n0-1", 99)),
            *_stored_anew("k0"),
        ),
        sessions=((_row_write("1", "set k1", "w"), _read("1", "k0", "r")),),
        after=(("hurry", *_read("1", "k0", "s")),),
        shape=_ROWS_PROBED,
    ),
    "rows of two tables are written, and the log of one is new": Case(
        before=(
            *(*_SLOTS, _row_write("0", "move k0", "v"), ("step", "0-n0-1", 99)),
            *_stored_anew("k0"),
        ),
        sessions=((_row_write("1", "set k1, set j0", "w"), _read("1", "k0", "r")),),
        after=(("hurry", *_read("1", "k0", "s")),),
        shape=_ROWS_PROBED,
    ),
    "a row is written amid its move, whose process stands still": Case(
        before=(
            *(*_PROBED, _row_write("0", "move k0", "v"), ("step", "0-n0-1", 99), ("freeze", "0")),
            *_stored_anew("k0", ("pass", DEADLINE_S / 2 - 0.1)),
        ),
        sessions=((_row_write("1", "set k1", "w"), _read("1", "k0", "r")),),
        after=(("hurry", *_read("1", "k0", "s")),),
        shape=_ROWS_PROBED,
    ),
    "a row moves amid the move of another, whose fence is lost": Case(
        before=(
            *(*_PROBED, _row_write("0", "put i0k1", "v"), ("step", "0-n0-1", 99)),
            *_stored_anew("k1"),
        ),
        sessions=((_row_write("1", "put i0k0", "w", "probed"), _read("1", "k1", "r")),),
        after=(("hurry", *_read("1", "k1", "s")),),
        shape=_ROWS_PROBED,
    ),
    "a fence that rows share stays, and a beat puts it up anew": Case(
        before=(
            *(*_PROBED, ("pass", 0.06), _row_write("0", "set k0", "w"), ("pass", 0.9395)),
            *(("commit", "0:w.0"), ("execute", "0-n0-1"), ("deliver", "0-n0-1")),
            ("evict", "tag s.r"),
            *(("hurry", *_read("1", "r", f"window {number}")) for number in range(3)),
            *(12 * (("tick", 0.0002), ("execute", "0-n0-1"), ("deliver", "0-n0-1"))),
        ),
        sessions=((_write("2", "set r", "v", "straight"),),),
        after=(("hurry", *_read("1", "r", "r")),),
        shape=replace(_LEASES_AND_LOSSES, rows=True, lingers=True),
    ),
    "an answer about rows waits for another node": Case(
        before=(
            *(*_SLOTS, ("hurry", *_read("1", "i0", "fill")), ("hurry", *_read("1", "i0", "near"))),
            *(("settle",), ("pass", 2 * LEASE_S + 0.25)),
            *(_read("1", "k1", "late"), ("execute", "1-n0-1"), ("deliver", "1-n0-1")),
            *(_row_write("0", "set i0", "w"), ("execute", "0-n0-1"), ("deliver", "0-n0-1")),
            *(("tick", 1.3 * LEASE_S), ("commit", "0:w.0")),
            *(("execute", "0-n0-1"), ("deliver", "0-n0-1"), ("evict", "tag s.r")),
            _read("1", "k0", "window"),
            *(4 * (("execute", "1-n0-1"), ("deliver", "1-n0-1"))),
            *(("execute", "1-n1-1"), ("deliver", "1-n1-1"), ("hurry", *_read("1", "i0", "r"))),
        ),
        sessions=(),
        shape=replace(_LEASES, processes=2, nodes=2, rows=True),
    ),
    "a fence is undone where others have promised": Case(
        before=(
            ("slot", "0", "u"),
            *(("slot", "1", letter) for letter in "ijk"),
            ("settle",),
            *(("hurry", *_read("0", query, f"before {query}")) for query in ("r", "k1j0")),
            *(("hurry", *_read("1", "k1j0", "before")), ("hurry", *_read("0", "k0", "before k0"))),
            *(_row_write("1", "set j1", "w", "straight"), ("tick", 0.03), ("tick", 0.13)),
            *(("tick", 0.105), ("execute", "1-n0-1", 1000)),
            _row_write("1", "set k1, put i0k1", "v", "probed"),
            _row_write("0", "drop i0", "w", "probed"),
            ("hurry", *_row_write("0", "set k1", "v", "probed")),
            ("hurry", *_row_write("0", "set j1, move k0", "u", "probed")),
        ),
        sessions=(),
        shape=replace(_LEASES, processes=2, witness=True, rows=True, lingers=True),
    ),
    "a write waits for the windows of others": Case(
        before=(
            *(*_WINDOW, _write("0", "a", "w"), ("execute", "0-n0-1"), ("deliver", "0-n0-1")),
            ("tick", 0.6 * LEASE_S),
        ),
        sessions=(),
        faults=(_read("1", "a", "r"),),
        after=(("tick", 0.7 * LEASE_S), ("settle",)),
        shape=_LEASES,
    ),
    "two writes wait for windows side by side": Case(
        before=(
            *(*_WINDOW, _write("0", "a", "w", "straight")),
            *(("execute", "0-n0-1"), ("deliver", "0-n0-1"), ("tick", 0.6 * LEASE_S)),
        ),
        sessions=((_write("0", "a", "v", "straight"),),),
        faults=(_read("1", "a", "r"),),
        after=(("tick", 0.7 * LEASE_S), ("settle",)),
        shape=_LEASES,
    ),
    "a write has windows in its own process": Case(
        before=_WINDOW,
        sessions=((_write("1", "a", "w"),),),
        faults=(_read("1", "a", "r"),),
        shape=_LEASES,
    ),
    "a log with a promise is made anew": Case(
        before=(*_WINDOW, ("evict", "tag s.a")),
        sessions=((_read("2", "a", "r"),), (_write("0", "a", "w"),)),
        faults=(_read("1", "a", "r"),),
        shape=_LEASES,
    ),
    "a reply is long on its way": Case(
        before=(
            *(*_WINDOW, ("tick", LEASE_S), _read("1", "a", "late"), ("execute", "1-n0-1")),
            *(_write("0", "a", "w"), ("execute", "0-n0-1"), ("deliver", "0-n0-1")),
            *(("tick", 0.9 * LEASE_S), ("deliver", "1-n0-1"), ("tick", 0.4 * LEASE_S)),
            *(("commit", "0:w.0"), ("hurry", *_read("1", "a", "r")), ("settle",)),
        ),
        sessions=(),
        shape=_LEASES,
    ),
    "windows open while a fence is lost": Case(
        before=(
            *(*_WINDOW, _write("0", "a", "w"), ("pass", 2 * LEASE_S), ("evict", "tag s.a")),
            *(("hurry", *_read("1", "a", "r")), ("hurry", *_read("1", "a", "s"))),
        ),
        sessions=((_write("2", "a", "w"),),),
        faults=(_read("1", "a", "t"),),
        ticks=(LEASE_S / 2,),
        shape=_LEASES_AND_LOSSES,
    ),
    **{
        f"a beat comes just before the lift{title}": Case(
            before=(
                *(*_WINDOW, _write("0", "a", "w", style), ("pass", 0.95), ("evict", "tag s.a")),
                *_hits_until_a_beat_is_sent("1"),
                *(("commit", "0:w.0"), ("execute", "0-n0-1"), ("deliver", "0-n0-1")),
            ),
            sessions=(),
            faults=(_read("1", "a", "late"),),
            shape=_LEASES_AND_LOSSES,
        )
        for title, style in (("", "plain"), (" of a shared fence", "straight"))
    },
    **{
        f"a beat finds no fence{title}": Case(
            before=(
                *(*_WINDOW, _write("0", "a", "w", style), ("pass", 0.95), ("evict", "tag s.a")),
                *_hits_until_a_beat_is_sent("1"),
                *(("execute", "0-n0-1"), ("deliver", "0-n0-1"), ("commit", "0:w.0")),
            ),
            sessions=(),
            faults=(_read("1", "a", "late"),),
            shape=_LEASES_AND_LOSSES,
        )
        for title, style in (("", "plain"), (" amid a write in two parts", "parts"))
    },
    "a mark and a lift come late": Case(
        before=(
            *(*_WINDOW, _write("0", "a", "w"), ("break", "0-n0-1"), *_again("0-n0-2")),
            *(("execute", "0-n0-2"), ("deliver", "0-n0-2"), ("tick", 1.3 * LEASE_S)),
            *(("execute", "2-n0-1"), ("deliver", "2-n0-1")),
            *(("commit", "0:w.0"), ("execute", "0-n0-2"), ("break", "0-n0-2"), *_again("0-n0-3")),
            *(("hurry", *_read("1", "a", "r")), ("hurry", *_read("1", "a", "s"))),
            *(("hurry", *_read("1", "a", "t")), ("hurry", *_read("1", "a", "u"))),
            *(("execute", "0-n0-1"), ("execute", "0-n0-3"), ("deliver", "0-n0-3")),
            *(("hurry", *_write("2", "a", "w")), ("hurry", *_read("1", "a", "v"))),
        ),
        sessions=(),
        shape=_LEASES,
    ),
    "a fill is overtaken by a write": Case(
        before=_OUTDATED,
        sessions=((_read("0", "a", "r"),), (_write("1", "a", "w"), _read("1", "a", "s"))),
    ),
    "a reader comes to its own process's flight after a write": Case(
        before=_OUTDATED,
        sessions=((_read("0", "a", "r"),), (_write("1", "a", "w"), _read("0", "a", "s"))),
    ),
    "the first read and the first write": Case(
        sessions=((_read("0", "a", "r"),), (_write("1", "a", "w"),)),
    ),
    "two writes side by side": Case(
        before=(_FILLED,),
        sessions=((_write("0", "a", "w"),), (_write("1", "a", "v"),), (_read("2", "a", "r"),)),
        shape=Shape(processes=3),
    ),
    "a fence stands longer than the deadline on a node that is silent": Case(
        before=(
            *(("freeze", "1"), ("pass", 2.9), _write("0", "a", "w"), ("pass", 0.02)),
            *(("stall", "n0"), ("pass", DEADLINE_S), ("resume", "n0"), ("thaw", "1")),
            *(("pass", 0.6), ("hurry", *_read("1", "a", "r")), ("freeze", "0"), ("pass", 6.0)),
        ),
        sessions=(),
    ),
    "two writes share a fence": Case(
        before=(_FILLED,),
        sessions=(
            (_write("0", "a", "w", "straight"),),
            (_write("0", "a", "v", "straight"),),
            (_read("1", "a", "r"),),
        ),
    ),
    "a fence stays for the next write": Case(
        before=(_FILLED, ("hurry", *_write("0", "a", "w", "straight"))),
        sessions=((_write("0", "a", "v", "straight"),), (_read("1", "a", "r"),)),
        faults=(("kill", "0"),),
        after=_UNTIL_FENCES_LAPSE,
        shape=Shape(lingers=True),
    ),
    "a write that is denied shares a fence": Case(
        before=(_FILLED,),
        sessions=(
            (_write("0", "a", "w", "straight"),),
            (_write("0", "a", "v", "denied"),),
            (_read("1", "a", "r"),),
        ),
    ),
    "writes share a fence that is lost": Case(
        before=_SHARED_AND_LOST,
        sessions=((_read("1", "a", "s"),),),
        shape=_LOSING,
    ),
    "a fence that is lost is shared, and others mark the table": Case(
        before=(*_SHARED_AND_LOST, _write("1", "a", "u", "undo")),
        sessions=(),
        after=(("settle",), ("hurry", *_read("1", "a", "s"))),
        shape=_LOSING,
    ),
    "a shared fence may have lapsed": Case(
        before=(
            _FILLED,
            ("write", "0", "a", "straight", "0:w"),
            ("pass", 0.05),
            ("cut", "0", "n0"),
            ("pass", 2.7),
            _write("0", "a", "v", "straight"),
            ("pass", 2.7),
            _write("0", "a", "u", "straight"),
            _read("1", "a", "r"),
            ("pass", 1.5),
        ),
        sessions=((_read("1", "a", "s"),),),
        shape=Shape(consistency=True),
    ),
    "a write in two parts": Case(
        before=(_FILLED,),
        sessions=((_write("0", "a", "w", "parts"),), (_read("1", "a", "r"),)),
    ),
    "request by request": Case(
        before=(_FILLED,),
        sessions=((_write("1", "a", "w"),), (_read("0", "a", "r"),)),
        finely=True,
    ),
    "two tables on two nodes": Case(
        before=(("hurry", *_read("0", "ab", "before")),),
        sessions=((_write("0", "ab", "w"),), (_read("1", "ab", "r"),)),
        shape=Shape(nodes=2),
    ),
    "entries near": Case(
        before=(_FILLED, ("hurry", *_read("1", "a", "before"))),
        sessions=((_write("0", "a", "w"),), (_read("1", "a", "r"), _read("1", "a", "s"))),
        shape=Shape(near_bytes=100_000),
    ),
    "everything is written where there are two nodes": Case(
        before=(_FILLED, ("hurry", *_read("0", "b", "other"))),
        sessions=((_write("0", "*", "w"),), (_read("1", "b", "r"),)),
        after=(("hurry", *_read("1", "a", "s")), ("hurry", *_read("1", "b", "t"))),
        shape=Shape(nodes=2),
    ),
    "a tag is evicted": Case(
        before=_OUTDATED,
        sessions=((_read("0", "ab", "r"),), (_write("1", "a", "w"),)),
        faults=(("evict", "tag s.a"),),
    ),
    "the writer is killed": Case(
        before=(_FILLED,),
        sessions=((_write("0", "a", "w"),), (_read("1", "a", "r"),)),
        faults=(("kill", "0"),),
        after=_UNTIL_FENCES_LAPSE,
    ),
    "the writer loses MySQL": Case(
        before=(_FILLED,),
        sessions=((_write("0", "a", "w"),), (_read("1", "a", "r"),)),
        faults=(("lose", "0:w.0"),),
        after=_UNTIL_FENCES_LAPSE,
    ),
    "the writer loses memcached": Case(
        before=(_FILLED,),
        sessions=((_write("0", "a", "w"),), (_read("1", "a", "r"),)),
        faults=(("break", "0-n0-1"),),
        after=_UNTIL_FENCES_LAPSE,
    ),
    "the node is cut off": Case(
        before=(_FILLED,),
        sessions=((_write("0", "a", "w"),), (_read("1", "a", "r"),)),
        faults=(("stall", "n0"),),
        after=(("pass", 3.0), *_BACK_BEFORE_THE_WRITER),
    ),
    "the node is cut off, and the writer dies": Case(
        before=(_FILLED, ("stall", "n0"), _write("0", "a", "w"), ("pass", 3.0)),
        sessions=((_read("1", "a", "r"),),),
        after=(("kill", "0"), *_OUTAGE),
    ),
    "the node is back before a write has ended": Case(
        before=(_FILLED, ("stall", "n0"), _write("0", "a", "w"), ("pass", 3.0), *_MEANWHILE),
        sessions=((_read("1", "a", "r"),),),
        after=(("thaw", "0"), ("settle",), ("pass", _LONG)),
    ),
    "the node is back before a fence is": Case(
        before=(
            _FILLED,
            ("pass", 0.7),
            ("stall", "n0"),
            _write("0", "a", "w"),
            ("pass", 3.0),
            ("rejoin", "n0"),
            ("pass", 0.8),
        ),
        sessions=((_read("1", "a", "r"),),),
        after=(("settle",), ("pass", _LONG)),
    ),
    "the node is back before a fence is, which has missed a moment": Case(
        before=(
            *(_FILLED, ("pass", 0.7), ("stall", "n0"), _write("0", "a", "w"), ("pass", 0.5)),
            *(("cut", "0", "n0"), ("rejoin", "n0"), ("pass", 0.3), ("stall", "n0")),
            *(("pass", 1.7), ("rejoin", "n0"), ("pass", 0.6)),
        ),
        sessions=((_read("1", "a", "r"),),),
        after=(("settle",), ("pass", _LONG)),
    ),
    "a writer misses a moment in which the node lives": Case(
        before=(
            ("pass", 3.2),
            _FILLED,
            _write("1", "a", "w"),
            ("stall", "n0"),
            ("pass", 0.9),
            ("rejoin", "n0"),
            ("settle",),
            ("stall", "n0"),
            ("pass", 1.2),
            ("settle",),
            ("rejoin", "n0"),
            ("pass", 0.5),
        ),
        sessions=((_read("0", "a", "r"),),),
    ),
    "a process starts after a moment that the writer missed": Case(
        before=(
            *(("pass", 3.1), _FILLED, ("kill", "1"), _write("0", "a", "w"), ("stall", "n0")),
            *(("pass", 0.9), ("rejoin", "n0"), ("pass", 0.1), ("stall", "n0"), ("pass", 1.2)),
            *(("settle",), ("freeze", "0"), ("resume", "n0"), ("start", "1"), ("settle",)),
        ),
        sessions=((_read("1", "a", "r"),),),
        after=(
            *(("pass", OUTAGE_S / 2 + 0.1), ("hurry", *_read("1", "a", "s"))),
            *(("thaw", "0"), ("pass", _LONG)),
        ),
    ),
    **{
        f"who began while the node was away writes, and {title}": Case(
            before=(*_STRANGER, (end, "2"), ("rejoin", "n0"), ("pass", 3.0)),
            sessions=((_read("1", "a", "r"),),),
            after=(*(("thaw", "2"), ("pass", _LONG)), ("hurry", *_read("0", "a", "s"))),
            shape=Shape(processes=3, witness=False),
        )
        for title, end in (("is killed", "kill"), ("ends", "stop"), ("stands still", "freeze"))
    },
    "who began while the node was away misses a moment in which it lives": Case(
        before=(
            *(*_TWO_FILLED, ("stop", "2"), ("settle",), ("pass", 0.5), ("stall", "n0")),
            *(("start", "2"), ("pass", 0.5), ("cut", "2", "n0"), ("rejoin", "n0"), ("pass", 0.3)),
            *(("stall", "n0"), ("pass", 1.4), _write("2", "a", "w"), ("pass", 0.3), ("settle",)),
            *(("kill", "2"), ("rejoin", "n0"), ("pass", 1.0)),
        ),
        sessions=((_read("1", "a", "r"),),),
        after=(("pass", _LONG), ("hurry", *_read("0", "a", "s"))),
        shape=Shape(processes=3, witness=False),
    ),
    "who starts after one that began while the node was away": Case(
        before=(*_STRANGER, ("kill", "2"), ("rejoin", "n0"), ("start", "2"), ("pass", 0.8)),
        sessions=((_read("2", "a", "r"),),),
        after=(("pass", _LONG), ("hurry", *_read("0", "a", "s"))),
        shape=Shape(processes=3, witness=False),
    ),
    "who was alone began while the node was away, and the next starts": Case(
        before=(
            *(_FILLED, ("stop", "0"), ("settle",), ("pass", 0.5), ("stall", "n0"), ("start", "0")),
            *(("pass", 3.0), _write("0", "a", "w"), ("pass", 3.0), ("settle",), ("stop", "0")),
            *(("pass", 3.0), ("rejoin", "n0"), ("pass", 1.0), ("start", "0"), ("pass", 0.5)),
        ),
        sessions=((_read("0", "a", "r"),),),
        after=(("pass", _LONG), ("hurry", *_read("0", "a", "s"))),
        shape=Shape(processes=1, witness=False),
    ),
    "an answer waits for another node while one is trusted again": Case(
        before=(
            *(("hurry", *_read(process, "ab", "fill")) for process in "01"),
            *(("stall", "n0"), _write("0", "a", "w"), ("pass", 3.0), ("settle",)),
            *(("kill", "0"), ("rejoin", "n0"), ("pass", 2.65)),
            *(("stall", "n1"), _read("1", "ab", "r"), *_carried_out("1", "n0")),
            *(("pass", 0.22), ("resume", "n1"), ("settle",)),
        ),
        sessions=(),
        shape=Shape(processes=3, nodes=2, witness=False),
    ),
    "another memory answers at a node's address, and the first again": Case(
        before=(
            *(_FILLED, ("hurry", *_read("1", "a", "fill")), ("swap", "n0"), ("pass", 12.0)),
            *(("hurry", *_write("1", "a", "w")), ("swap", "n0"), ("pass", 0.1)),
        ),
        sessions=((_read("0", "a", "r"),),),
        after=(("pass", 0.3), ("hurry", *_read("0", "a", "s")), ("pass", 12.0)),
        shape=Shape(witness=False),
    ),
    "a writer stands still before its write is sent": Case(
        before=(
            ("stall", "n0"),
            _write("0", "a", "w"),
            ("pass", 0.3),
            ("freeze", "0"),
            ("rejoin", "n0"),
            ("pass", 12.0),
            ("hurry", *_read("1", "a", "before")),
            ("thaw", "0"),
        ),
        sessions=((_read("1", "a", "r"),),),
        after=(("settle",), ("hurry", *_read("1", "a", "s"))),
    ),
    "all die that knew of a write": Case(
        before=(_FILLED, ("stall", "n0"), _write("0", "a", "w"), ("pass", 3.0), *_ALL_DIE),
        sessions=((_read("1", "a", "r"),),),
        after=(("settle",), ("pass", _LONG)),
        shape=Shape(witness=False),
    ),
    "a write takes longer than the deadline": Case(
        before=(_FILLED, _write("0", "a", "w"), ("pass", DEADLINE_S + 2)),
        sessions=((_read("1", "a", "r"),),),
    ),
    "who has just started goes on without a node": Case(
        before=(
            *(("hurry", *_read("1", "a", "fill")), ("stall", "n0"), ("pass", OUTAGE_S + 0.6)),
            *(("resume", "n0"), ("settle",), ("stop", "1"), ("settle",)),
            *(("start", "1"), ("pass", 0.22), ("stall", "n0"), _write("1", "a", "w", "straight")),
            *(("pass", OUTAGE_S + 0.6), ("settle",), ("freeze", "1"), ("rejoin", "n0")),
            *(("pass", 1.2), ("thaw", "1"), ("pass", _LONG)),
        ),
        sessions=(),
    ),
    "who has just started, in a quarantine of others, goes on without a node": Case(
        before=(
            *(*_TWO_FILLED, ("stop", "1"), ("settle",), ("freeze", "2"), ("pass", 1.4)),
            *(("thaw", "2"), ("pass", 0.3), ("start", "1"), ("pass", 0.15), ("stall", "n0")),
            *(_write("1", "a", "w"), ("pass", 0.6), ("cut", "1", "n0"), ("rejoin", "n0")),
            *(("pass", 0.3), ("stall", "n0"), ("pass", 1.7), ("settle",), ("kill", "1")),
            *(("rejoin", "n0"), ("pass", 1.0)),
        ),
        sessions=((_read("0", "a", "r"),),),
        after=(("pass", _LONG), ("hurry", *_read("0", "a", "s"))),
        shape=Shape(processes=3, witness=False),
    ),
    "the node is lame, and well before the writer": Case(
        before=(
            *(*_TWO_FILLED, ("lame", "n0", "CARRYING_OUT"), _write("0", "a", "w")),
            *(("pass", LONGEST_WAIT_S + 1), ("settle",), ("freeze", "0"), ("rejoin", "n0")),
            ("pass", 1.0),
        ),
        sessions=((_read("1", "a", "r"),),),
        after=(("thaw", "0"), ("pass", 12.0), ("hurry", *_read("1", "a", "s"))),
    ),
    "the node is lame, and the writer dies": Case(
        before=(
            *(*_TWO_FILLED, ("lame", "n0", "ANSWERING"), _write("0", "a", "w")),
            *(("pass", LONGEST_WAIT_S + 1), ("hurry", *_write("0", "a", "v")), ("settle",)),
            *(("kill", "0"), ("rejoin", "n0"), ("pass", 1.0)),
        ),
        sessions=((_read("1", "a", "r"),),),
        after=(("pass", _LONG), ("hurry", *_read("1", "a", "s"))),
    ),
    "the node is lame for a moment": Case(
        before=(
            *(*_TWO_FILLED, ("lame", "n0", "CARRYING_OUT"), _write("0", "a", "w")),
            *(("pass", OUTAGE_S / 2 - 0.1), ("settle",), ("freeze", "0"), ("rejoin", "n0")),
        ),
        sessions=((_read("1", "a", "r"),),),
        after=(("thaw", "0"), ("pass", 12.0), ("hurry", *_read("1", "a", "s"))),
    ),
    "the node is lame while others promise": Case(
        before=(
            *(*_WINDOW, ("lame", "n0", "CARRYING_OUT"), _write("0", "a", "w")),
            *(("pass", LONGEST_WAIT_S + 1), ("settle",), ("well", "n0"), ("pass", 0.1)),
        ),
        sessions=((_read("1", "a", "r"),),),
        after=(("pass", 12.0), ("hurry", *_read("1", "a", "s"))),
        shape=_LEASES,
    ),
    "the node forgets a fence": Case(
        before=(_FILLED, _write("0", "a", "w"), ("pass", 0.05), *_RESTARTED),
        sessions=((_read("1", "a", "r"),),),
        after=(("thaw", "0"), ("settle",), ("pass", _LONG)),
    ),
    "the node is restarted": Case(
        before=(_FILLED,),
        sessions=((_write("0", "a", "w"),), (_read("1", "a", "r"),)),
        faults=(("restart", "n0"),),
        after=_UNTIL_FENCES_LAPSE,
    ),
}

_TWO_NODES = Shape(nodes=2)
_LEASE = Shape(near_bytes=100_000, read_lease_s=LEASE_S)
_UNSEEN_LEASE = replace(_LEASE, witness=False)
_LEASE_TWO_NODES = replace(_LEASE, nodes=2)
_LEASE_LINGERING = replace(_UNSEEN_LEASE, lingers=True)
_LEASE_LOSING = replace(_UNSEEN_LEASE, loses_fences=True)
_LEASE_STRICT = replace(_UNSEEN_LEASE, consistency=True)
_NEAR = Shape(near_bytes=100_000)
_PARTS = Shape(max_item_bytes=110)
_UNSEEN = Shape(witness=False)
_LOSING_TWO_NODES = Shape(nodes=2, loses_fences=True)
_LINGERING = Shape(lingers=True)
_LOSING_LINGERING = Shape(lingers=True, loses_fences=True)
_STRICT = Shape(consistency=True)
_STRICT_TWO_NODES = Shape(nodes=2, consistency=True)

_ROWS_LOSING = replace(_ROWS, loses_fences=True)
_ROWS_LEASES = replace(_LEASE, rows=True)

LARGE = (
    "a column is written, and read by some",
    "a transaction writes rows and another table",
    "a write of rows ends, request by request",
    "a row is written amid a fault",
    "rows are written by a column, and others move there",
    "a transaction writes rows that it moves",
    "rows are written by a column, and one comes that the server numbers",
    "a row moves amid a fault",
    "a row moves, and its process stood still when it had asked",
    "windows open while a fence is lost",
    "a fill is overtaken by a write",
    "two writes side by side",
    "writes share a fence that is lost",
    "a fence that is lost is shared, and others mark the table",
    "request by request",
    "two tables on two nodes",
    "everything is written where there are two nodes",
    "a tag is evicted",
)
"""Cases of more orders than every run of the tests goes through: `make soak` does."""

PROFILES = {
    "rows": Profile(
        (_ROWS, replace(_ROWS, nodes=2), replace(_ROWS, near_bytes=100_000), _ROWS_LINGERING),
        ("evict", "break", "discard", "lose"),
    ),
    "rows, processes": Profile(
        (
            *(_ROWS, replace(_ROWS, processes=3), replace(_ROWS, witness=False, nodes=2)),
            replace(_ROWS_LINGERING, witness=False),
        ),
        ("kill", "stop", "freeze", "lose", "evict", "restart", "stall"),
        slow=True,
    ),
    "rows, read leases": Profile(
        (
            *(_ROWS_LEASES, replace(_ROWS_LEASES, witness=False)),
            replace(_ROWS_LEASES, lingers=True),
        ),
        ("evict", "break", "discard", "lose", "freeze"),
    ),
    "rows, fences are lost": Profile(
        (
            *(_ROWS_LOSING, replace(_ROWS_LEASES, loses_fences=True, witness=False)),
            *(_ROWS_PROBED, replace(_ROWS_PROBED, near_bytes=100_000)),
            replace(_ROWS_PROBED, lingers=True),
        ),
        ("evict", "freeze", "lose", "break", "restart", "kill"),
        slow=True,
    ),
    "read leases": Profile(
        (_LEASE, _UNSEEN_LEASE, _LEASE_TWO_NODES, _LEASE_LINGERING),
        ("evict", "break", "discard", "lose", "freeze"),
    ),
    "read leases, fences are lost": Profile(
        (_LEASE_LOSING, replace(_LEASE_LOSING, lingers=True)),
        ("evict", "freeze", "lose", "break", "restart", "kill"),
    ),
    "read leases, nodes": Profile(
        (_UNSEEN_LEASE, _LEASE_STRICT, replace(_LEASE_TWO_NODES, witness=False)),
        ("stall", "down", "restart", "kill", "freeze", "stop", "cut"),
        slow=True,
    ),
    "traffic": Profile(
        (PLAIN, _TWO_NODES, _NEAR, _PARTS, _LINGERING), ("evict", "break", "discard", "lose")
    ),
    "processes": Profile(
        (PLAIN, _TWO_NODES, _UNSEEN, _LINGERING),
        ("kill", "stop", "freeze", "lose", "evict"),
        slow=True,
    ),
    "nodes": Profile(
        (PLAIN, _TWO_NODES, _NEAR, _UNSEEN),
        ("stall", "down", "restart", "kill", "freeze", "stop", "cut"),
        slow=True,
    ),
    "lame nodes": Profile(
        (PLAIN, _TWO_NODES, _UNSEEN, _UNSEEN_LEASE, _STRICT),
        ("lame", "lame", "stall", "restart", "kill", "freeze", "stop", "evict"),
        slow=True,
    ),
    "fences are lost": Profile(
        (_LOSING, _LOSING_TWO_NODES, _LOSING_LINGERING),
        ("evict", "freeze", "lose", "break", "restart", "kill"),
        slow=True,
    ),
    "busy host": Profile(
        (PLAIN, _TWO_NODES, _UNSEEN), ("late", "stall", "restart", "freeze", "kill"), slow=True
    ),
    "consistency": Profile(
        (_STRICT, _STRICT_TWO_NODES),
        ("stall", "down", "restart", "kill", "freeze", "cut", "evict"),
        slow=True,
    ),
}
