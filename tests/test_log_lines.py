"""docs/log-lines.md has each line that the code logs at warning and above, and no other; and
docs/operations.md the kinds of events."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from sqlcache.process import events

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "log-lines.md"
OPERATIONS = ROOT / "docs" / "operations.md"
ROW = re.compile(
    r"^\| `([^`]+)` \| (warning|error|critical) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE
)
LEVELS = {
    "warning": "warning",
    "error": "error",
    "exception": "error",
    "critical": "critical",
}
LOST = "lines lost, for who reads them did not keep up"  # of no logger's call
FIELDS_OR_VALUES = re.compile(r"[\s:,]*(?:[a-z_]+=|%[a-z]).*", re.DOTALL)


def calls() -> Iterator[tuple[Path, ast.Call]]:
    """Every call of a logger."""
    for file in sorted((ROOT / "sqlcache").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="log" | "_log" | "logger"))):
                    yield file, node


def words_of(file: Path, said: ast.expr) -> str:
    """What stays the same of what a call says: the begin of the line's `event`."""
    assert isinstance(said, ast.Constant), f"{file}:{said.lineno}: words that can be found"
    return FIELDS_OR_VALUES.sub("", str(said.value))


def logged() -> set[tuple[str, str]]:
    """The words and the level of each line from warning on."""
    found = {(LOST, "warning")}
    for file, call in calls():
        assert isinstance(call.func, ast.Attribute)
        if level := LEVELS.get(call.func.attr):
            found.add((words_of(file, call.args[0]), level))
        elif call.func.attr == "log" and "logging.WARNING" in file.read_text():
            found.add((words_of(file, call.args[1]), "warning"))
    return found


def test_each_line_that_asks_for_action_is_on_the_page_and_no_other() -> None:
    told = [(words, level) for words, level, *_ in ROW.findall(PAGE.read_text())]
    assert len(told) > 50, "else this shows nothing"
    assert sorted(set(told)) == sorted(told), "each is there once"
    assert sorted(logged() - set(told)) == []
    assert sorted(set(told) - logged()) == []


def test_each_row_of_the_page_is_whole() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert [row for row in rows if not ROW.match(row)] == []


def test_the_kinds_of_events_are_in_the_operations_page() -> None:
    mostly = {kind for _, kind in events._KINDS} | {events._OTHER}
    given = {
        keyword.value.values[0].value
        for _, call in calls()
        for keyword in call.keywords
        if keyword.arg == "extra" and isinstance(keyword.value, ast.Dict)
        if isinstance(keyword.value.values[0], ast.Constant)
    }
    (said,) = re.findall(r"Kinds are\s+(.*?)\. ", OPERATIONS.read_text(), re.DOTALL)
    outside = re.sub(r"\([^)]*\)", "", said)
    assert set(re.findall(r"`(\w+)`", outside)) == mostly | given


def test_lines_are_logged_by_names_that_this_finds() -> None:
    for file in sorted((ROOT / "sqlcache").rglob("*.py")):
        made = re.findall(r"^(\w+)(?:: \S+)? = logging\.getLogger", file.read_text(), re.MULTILINE)
        assert set(made) <= {"log", "_log", "logger"}, file
    assert LOST in (ROOT / "sqlcache" / "process" / "logs.py").read_text()
