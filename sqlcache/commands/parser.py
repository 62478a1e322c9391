"""What the command line may say: the parser of all commands and of their flags.

- The flags of `serve` are fixed: people's scripts depend on them. A flag wins over the environment
  and the file, and every flag's setting can be given there too.
- Help lists the flags a command uses; it accepts, and ignores, the rest of `serve`'s.
"""

from __future__ import annotations

import argparse
from collections.abc import Container, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NoReturn

from sqlcache import __version__
from sqlcache.settings.sources import DEFAULT_FILE, SHORT_NAMES, without_login

_SHOWN: Final = {
    "statements": "what a running sqlcache has answered statements by, and why not from the cache",
    "tables": "which tables are read from its cache, written and invalidated",
    "nodes": "its memcached nodes, and how many of its processes are without each",
    "sessions": "the clients that are connected to it, and why they have no hits",
    "events": "what has happened to it lately",
}

_NODES_ALONE: Final = MappingProxyType({"memcached": "a memcached node, once for each"})
"""The meaning for commands that ask what others share, and refuse a process's own memory."""

_HINT: Final = (
    f"; settings without a flag are given as SQLCACHE_CACHE__TTL_S=5 or in {DEFAULT_FILE}"
)


class _Parser(argparse.ArgumentParser):
    """Takes flags by their full names only, and repeats none of a URL's login when it complains."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)
        self.takes_settings = False

    def error(self, message: str) -> NoReturn:
        super().error(without_login(message))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Refuses what it does not know: else the parser of all commands does, with its usage."""
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            is_flag = any(each.startswith("--") for each in unknown)
            hint = _HINT if self.takes_settings and is_flag else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return known, unknown

    def print_help(self, file: Any = None) -> None:
        print(self.format_help(), end="", file=file)  # argparse would not say that this fails


class _Version(argparse.Action):
    """Says the version, and which implementation of the kernel runs."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from sqlcache.implementation import IMPLEMENTATION  # only here: it may be refused

        print(f"sqlcache {__version__} ({IMPLEMENTATION})")
        parser.exit()


def make_parser() -> argparse.ArgumentParser:
    """Of the whole command line; what it parses has `command`, the name of one."""
    parser = _Parser(
        prog="sqlcache",
        description="A caching proxy for SQL reads: change one address, and reads get fast.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="say which one this is")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(name: str, tells: str) -> _Parser:
        added = commands.add_parser(name, help=tells)
        added.set_defaults(command=name)
        return added

    _add_setting_flags(add("serve", "run the proxy"), SHORT_NAMES)
    _add_setting_flags(
        add("invalidate", "follow MySQL's binary log for a fleet, and serve nobody"),
        ("upstream", "memcached", "admin", "log_level"),
        _NODES_ALONE,
    )
    health = add("healthcheck", "ask a running sqlcache if it is ready")
    _add_setting_flags(health, ("admin",))
    check = add("check-config", "say what the settings are, or what is wrong")
    check.add_argument(
        "--connect", action="store_true", help="ask MySQL and memcached, too, and for the rights"
    )
    _add_setting_flags(check, SHORT_NAMES)
    _fill_stats(add("stats", "say what memcached holds, or what of one table"))
    top = add("top", "watch a running sqlcache, in the terminal")
    _add_setting_flags(top, ("admin",))
    _fill_flush(add("flush", "have a running sqlcache forget answers"))
    save = add("save", "write what memcached remembers into a file")
    load_saved = add("load", "give an empty memcached what a file has")
    for each in (save, load_saved):
        each.add_argument("file", metavar="FILE", type=Path, help="with all answers: keep it safe")
        _add_setting_flags(each, ("upstream", "memcached", "binlog"), _NODES_ALONE)
    _fill_explain(add("explain", "say what becomes of a statement, and why"))
    _fill_init(add("init", "write the files that a new installation needs"))
    completions = add("completions", "print a script that completes commands")
    shells = ("bash", "zsh", "fish")
    completions.add_argument("shell", metavar="SHELL", choices=shells, help=", ".join(shells))
    _fill_demo(add("demo", "measure reads with and without sqlcache"))
    return parser


def _fill_stats(stats: _Parser) -> None:
    about = stats.add_mutually_exclusive_group()
    about.add_argument("--table", metavar="SCHEMA.TABLE", help="its tag, and what hangs on it")
    for shown, tells in _SHOWN.items():
        about.add_argument(
            f"--{shown}", action="store_const", const=shown, dest="shown", help=tells
        )
    about.add_argument(
        "--suggest",
        action="store_true",
        help="rules that its statements' figures speak for, as TOML",
    )
    stats.add_argument("--sort", metavar="NAME", help="what the first rows have most of")
    stats.add_argument("--limit", metavar="N", type=_positive, default=30, help="rows (30)")
    stats.add_argument("--json", action="store_true", help="the rows as JSON, with all there is")
    _add_setting_flags(stats, ("memcached", "admin"), _NODES_ALONE)


def _fill_flush(flush: _Parser) -> None:
    flushed = flush.add_mutually_exclusive_group(required=True)
    flushed.add_argument("--table", metavar="SCHEMA.TABLE", help="those that hang on a table")
    flushed.add_argument("--schema", metavar="NAME", help="those of a schema")
    flushed.add_argument("--all", action="store_true", help="all of them")
    _add_setting_flags(flush, ("admin",))


def _fill_explain(explain: _Parser) -> None:
    explain.add_argument("statement", metavar="STATEMENT", help="in quotes; it is not run")
    explain.add_argument("--schema", metavar="NAME", help="the session's default schema")
    explain.add_argument(
        "--user", metavar="NAME", default="", help="who sends it, for rules about users"
    )
    _add_setting_flags(
        explain,
        ("upstream", "admin"),
        {
            "admin": "ask the sqlcache that has this address, and nobody else",
            "upstream": "mysql://USER:PASSWORD@HOST:PORT, whose catalog is read; no sqlcache runs",
        },
    )


def _fill_init(init: argparse.ArgumentParser) -> None:
    add = init.add_argument
    add("--dir", metavar="FOLDER", type=Path, default=Path(), help="where they are put (here)")
    add("--force", action="store_true", help="overwrite those that are there")
    add(
        "--upstream",
        metavar="URL",
        help="mysql://USER:PASSWORD@HOST:PORT, or HOST:PORT (127.0.0.1:3306); a password is made"
        " where none is given",
    )
    add("--user", metavar="NAME", help="of the account for the catalog (sqlcache)")
    add("--password-file", metavar="FILE", type=Path, help="its password, which is kept there")
    for name, default in (
        ("listen", "127.0.0.1:3307"),
        ("memcached", "127.0.0.1:11211"),
        ("admin", "127.0.0.1:9307"),
    ):
        flag = _SETTING_FLAGS[name]
        add("--" + name, **{**flag, "help": f"{flag['help']} ({default})"})


def _fill_demo(demo: argparse.ArgumentParser) -> None:
    demo.add_argument(
        "--rows", type=_positive, default=30_000, help="rows of the table (default 30000)"
    )
    demo.add_argument(
        "--reads", type=_positive, default=1_000, help="reads of each run (default 1000)"
    )
    demo.add_argument(
        "--keep", action="store_true", help="leave all servers up until Ctrl-C, to try things"
    )


def _add_setting_flags(
    command: _Parser,
    listed: Container[str],
    meaning: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Those of SHORT_NAMES, and `--config`; help has the `listed` ones, some with a meaning of the
    command's own."""
    command.takes_settings = True
    admin: dict[str, Any] = {"type": _host_and_port}
    for name, flag in _SETTING_FLAGS.items():
        options = flag | (admin if name == "admin" else {})
        said = meaning.get(name, options["help"]) if name in listed else argparse.SUPPRESS
        options |= {"help": said}
        command.add_argument("--" + name.replace("_", "-"), **options)
    command.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        help=f"settings to start from instead of {DEFAULT_FILE}",
    )


_SETTING_FLAGS: Final[Mapping[str, dict[str, Any]]] = {
    "listen": {"metavar": "HOST:PORT", "help": "where MySQL clients connect"},
    "upstream": {"metavar": "URL", "help": "mysql://USER:PASSWORD@HOST:PORT, for the catalog"},
    "memcached": {
        "metavar": "HOST:PORT",
        "action": "append",
        "help": "a memcached node, once for each; or memory: this process's own",
    },
    "take_over": {
        "action": "store_const",
        "const": True,
        "help": "share the port of another sqlcache until that one is stopped",
    },
    "admin": {"metavar": "HOST:PORT", "help": "HTTP: /live, /ready, /metrics and /api"},
    "workers": {
        "metavar": "N",
        "help": "processes that share the port; auto: as many as CPUs",
    },
    "tls_certificate": {"metavar": "FILE", "help": "PEM, for clients that ask for TLS"},
    "tls_key": {"metavar": "FILE", "help": "PEM, the certificate's private key"},
    "binlog": {
        "metavar": "MODE",
        "help": "follow MySQL's binary log for writes made around it: auto, on or off",
    },
    "when_tags_unreachable": {
        "metavar": "POLICY",
        "help": "availability (send writes, invalidate later) or consistency (refuse them)",
    },
    "log_level": {"metavar": "LEVEL", "help": "debug, info, warning or error"},
}


def _host_and_port(text: str) -> str:
    """Of an address that was copied as a page's."""
    return text.removeprefix("http://").removesuffix("/")


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, not {text!r}")
    return int(text)
