"""docs/sqlcache.1 says what the command line takes: `python -m tests.test_man_page` writes it."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
from pathlib import Path
from unittest import mock

import pytest
from argparse_manpage.manpage import Manpage

from sqlcache import __version__
from sqlcache.commands.parser import make_parser

PAGE = Path(__file__).parents[1] / "docs" / "sqlcache.1"
SECTIONS = {
    "EXIT STATUS": "0 when all went well, 1 when what was to be shown does not hold or what was to"
    " be started cannot be just now, 2 when the command line, a setting or the machine is at"
    " fault.",
    "FILES": "sqlcache.toml in the working directory, or the file that --config or SQLCACHE_CONFIG"
    " names.",
    "ENVIRONMENT": "SQLCACHE_SECTION__NAME is the setting NAME of a section. A flag wins over the"
    " environment, that over the file.",
}


def man_page() -> str:
    """The page, from the parser itself."""
    with mock.patch.dict(os.environ, {"COLUMNS": "10000"}):  # whoever shows it breaks its lines
        page = Manpage(make_parser(), {"version": __version__, "manual_title": "sqlcache"})
        page.description = "a caching proxy for MySQL reads"
        page.date = ""  # of all that has changed since, it would say nothing
        for name, text in SECTIONS.items():
            page.add_section(name, ">", text.replace("-", r"\-"))
        return str(page)


def test_the_page_says_what_the_command_line_takes() -> None:
    assert PAGE.read_text() == man_page(), "python -m tests.test_man_page writes it anew"


def commands() -> dict[str, argparse.ArgumentParser]:
    (found,) = (a for a in make_parser()._actions if isinstance(a, argparse._SubParsersAction))
    return dict(found.choices)


def test_it_has_every_command_with_its_own_flags() -> None:
    page = PAGE.read_text().replace("\\-", "-")
    assert len(commands()) > 7, "else this shows nothing"
    for name, parser in commands().items():
        section = page.partition(f"COMMAND \\fI\\,'sqlcache {name}'")[2].partition(".SH COMMAND ")[
            0
        ]
        shown = [a for a in parser._actions if a.option_strings and a.help != argparse.SUPPRESS]
        flags = {flag for action in shown for flag in action.option_strings}
        for flag in flags - {"-h", "--help"}:
            assert f"\\fB{flag}\\fR" in section, (name, flag)
    assert "--take-over" not in page.partition("'sqlcache flush'")[2].partition("'sqlcache exp")[0]


def test_man_shows_it_without_a_complaint() -> None:
    if shutil.which("man") is None:
        pytest.skip("no man")
    environment = {**os.environ, "MANWIDTH": "80", "MANROFFSEQ": "", "LC_ALL": "C.UTF-8"}
    shown = subprocess.run(
        ["man", "--warnings", "--local-file", PAGE],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert shown.stderr == ""
    assert "check-config" in shown.stdout


if __name__ == "__main__":
    PAGE.write_text(man_page())
