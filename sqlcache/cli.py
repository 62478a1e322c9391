"""The command line: `sqlcache serve`, `healthcheck`, `check-config`, `explain`, `stats`, `demo`.

- The flags of `serve` are fixed: people's scripts depend on them. A flag wins over the environment
  and the file, and every flag's setting can be given there too.
- A password in a URL is taken out of the process list before anything else is done.
- Exit codes: 0 when all went well, 1 when what was to be shown does not hold, 2 when the command
  line, a setting or the machine is at fault: then a line on standard error for each cause.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from sqlcache import __version__, logs
from sqlcache.errors import SqlcacheError
from sqlcache.settings import DEFAULT_FILE, SHORT_NAMES, Loaded, load, without_login

_FAULT: Final = 2

_Command = Callable[[argparse.Namespace], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command (of `sys.argv`, unless given) and returns the process's exit code."""
    if arguments is None:
        _hide_login()
    try:
        options = _parser().parse_args(arguments)
        command: _Command = options.command
        return command(options)
    except SqlcacheError as error:
        for line in str(error).splitlines():
            print(f"sqlcache: {line}", file=sys.stderr)
        return _FAULT
    except BrokenPipeError:
        # Whoever read our output has gone. Python would fail once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _FAULT


def _serve(options: argparse.Namespace) -> int:
    settings = _load(options).settings
    from sqlcache.serving import serve  # only here: the other commands start faster without it

    logs.configure(settings.log.level)
    return serve(settings)


def _check_config(options: argparse.Namespace) -> int:
    """Prints every setting and where it came from; what is wrong arrives at `main` instead."""
    from sqlcache.implementation import IMPLEMENTATION  # only here, like serve's
    from sqlcache.rules import policy_of

    settings, sources = _load(options)
    policy_of(settings)
    for path, value in settings.items():
        shown = ", ".join(value) if isinstance(value, tuple) else value
        source = sources.get(path) or sources.get(path.partition("[")[0], "default")
        print(f"{path} = {'none' if shown is None else shown}  ({source})")
    print(f"the kernel is {IMPLEMENTATION}")
    print("all settings are right")
    if not options.connect:
        return 0
    from sqlcache.connect_check import run  # only here, like serve's

    return run(settings)


def _healthcheck(options: argparse.Namespace) -> int:
    from sqlcache.healthcheck import run  # only here, like serve's

    return run(_load(options).settings)


def _stats(options: argparse.Namespace) -> int:
    from sqlcache.stats import run  # only here, like serve's

    return run(_load(options).settings, options.table)


def _explain(options: argparse.Namespace) -> int:
    from sqlcache.explain import run  # only here, like serve's

    flags = vars(options) | {"memcached": ["memory"], "workers": 1}  # it stores nothing
    settings = _load(argparse.Namespace(**flags)).settings
    return run(settings, options.statement, options.schema, options.user)


def _demo(options: argparse.Namespace) -> int:
    from sqlcache.demo.run import run  # only here: it needs what no other command does

    return run(rows=options.rows, reads=options.reads, keep=options.keep)


def _hide_login() -> None:
    """Everyone on the machine can read the process list."""
    if any("://" in each for each in sys.argv):
        # Else it writes over what /proc tells of the environment. The new title is the shorter one.
        os.environ["SPT_NOENV"] = "1"
        from setproctitle import setproctitle  # only here: hardly anyone needs it

        setproctitle(" ".join(map(without_login, sys.orig_argv)))


def _load(options: argparse.Namespace) -> Loaded:
    flags = {name: getattr(options, name) for name in SHORT_NAMES}
    return load(options.config, os.environ, flags)


class _Parser(argparse.ArgumentParser):
    """Takes flags by their full names only, and repeats none of a URL's login when it complains."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        super().error(without_login(message))


class _Version(argparse.Action):
    """Says the version, and which implementation of the kernel runs."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from sqlcache.implementation import IMPLEMENTATION  # only here: it may be refused

        print(f"sqlcache {__version__} ({IMPLEMENTATION})")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="sqlcache",
        description="A caching proxy for SQL reads: change one address, and reads get fast.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="say which one this is")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    serve = commands.add_parser("serve", help="run the proxy")
    serve.set_defaults(command=_serve)
    health = commands.add_parser("healthcheck", help="ask a running sqlcache if it is ready")
    health.set_defaults(command=_healthcheck)
    check = commands.add_parser("check-config", help="say what the settings are, or what is wrong")
    check.set_defaults(command=_check_config)
    check.add_argument(
        "--connect", action="store_true", help="ask MySQL and memcached, too, and for the rights"
    )
    stats = commands.add_parser("stats", help="say what memcached holds, or what of one table")
    stats.set_defaults(command=_stats)
    stats.add_argument("--table", metavar="SCHEMA.TABLE", help="its tag, and what hangs on it")
    explain = commands.add_parser("explain", help="say what becomes of a statement, and why")
    explain.set_defaults(command=_explain)
    explain.add_argument("statement", metavar="STATEMENT", help="in quotes; it is not run")
    explain.add_argument("--schema", metavar="NAME", help="the session's default schema")
    explain.add_argument(
        "--user", metavar="NAME", default="", help="who sends it, for rules about users"
    )
    for command in (serve, health, check, explain, stats):
        _add_setting_flags(command)

    demo = commands.add_parser("demo", help="measure reads with and without sqlcache")
    demo.set_defaults(command=_demo)
    demo.add_argument(
        "--rows", type=_positive, default=30_000, help="rows of the table (default 30000)"
    )
    demo.add_argument(
        "--reads", type=_positive, default=1_000, help="reads of each run (default 1000)"
    )
    demo.add_argument(
        "--keep", action="store_true", help="leave all servers up until Ctrl-C, to try things"
    )
    return parser


def _add_setting_flags(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("--listen", metavar="HOST:PORT", help="where MySQL clients connect")
    add("--upstream", metavar="URL", help="mysql://USER:PASSWORD@HOST:PORT, for the catalog")
    add(
        "--memcached",
        metavar="HOST:PORT",
        action="append",
        help="a memcached node, once for each; or memory: this process's own",
    )
    add("--admin", metavar="HOST:PORT", help="HTTP: /live, /ready and /metrics")
    add("--workers", metavar="N", help="processes that share the port; auto: as many as CPUs")
    add("--tls-certificate", metavar="FILE", help="PEM, for clients that ask for TLS")
    add("--tls-key", metavar="FILE", help="PEM, the certificate's private key")
    add(
        "--when-tags-unreachable",
        metavar="POLICY",
        help="availability (send writes, invalidate later) or consistency (refuse them)",
    )
    add("--log-level", metavar="LEVEL", help="debug, info, warning or error")
    add(
        "--config",
        metavar="FILE",
        type=Path,
        help=f"settings to start from instead of {DEFAULT_FILE}",
    )


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, not {text!r}")
    return int(text)
