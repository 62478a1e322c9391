"""`sqlcache completions`: a script for a shell, made from the parser of the command line."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import shtab


def run(parser: argparse.ArgumentParser, shell: str) -> int:
    """Prints the script for bash, zsh or fish; returns the process's exit code."""
    print(script(parser, shell))
    return 0


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """What a shell has to read. Values that are files or folders are completed as such."""
    by_metavar = {"FILE": shtab.FILE, "FOLDER": shtab.DIRECTORY}
    for action in _actions(parser):
        if isinstance(action.metavar, str) and action.metavar in by_metavar:
            setattr(action, "complete", by_metavar[action.metavar])  # noqa: B010 - it is shtab's
    return shtab.complete(parser, shell)


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from _actions(each)
