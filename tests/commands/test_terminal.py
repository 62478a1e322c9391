"""What is printed of texts that clients choose."""

import pytest

from sqlcache.admin.client import AdminClient
from sqlcache.commands.remote import show
from sqlcache.commands.terminal import printable, printable_lines
from sqlcache.settings.sources import from_arguments

OBEYED = "\x1b]0;owned\x07"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("größer ∞ 表", "größer ∞ 表"),
        (OBEYED, r"\x1b]0;owned\x07"),
        ("a\rb\tc\x9bd\u202ee\u2028f\0\n", r"a\rb\tc\x9bd\u202ee\u2028f\x00\n"),
        ("\udcff", r"\udcff"),
    ],
)
def test_what_nobody_sees_is_named(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable_lines(f"{text}\n{text}") == f"{shown}\n{shown}".replace(r"\n", "\n")


def test_lists_print_nothing_that_a_terminal_obeys(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"at": "now", "kind": OBEYED, "pid": 7, "event": f"user {OBEYED}\u202e"}
    monkeypatch.setattr(AdminClient, "get", lambda *_: {"items": [row], "total": 1})
    settings = from_arguments(
        {
            "upstream.url": "mysql://sqlcache:password@db",
            "memcached.nodes": ["a:1"],
            "admin.listen": "127.0.0.1:9307",
        }
    )
    show(settings, "events", sort=None, limit=10, as_json=False)
    printed = capsys.readouterr().out
    assert printable_lines(printed) == printed
    assert printed.count(printable(OBEYED)) == 2
