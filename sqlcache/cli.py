"""The command line: `sqlcache serve`, `invalidate`, `init`, `healthcheck`, `check-config`,
`explain`, `stats`, `top`, `flush`, `save`, `load`, `completions`, `demo`.

- The flags of `serve` are fixed: people's scripts depend on them. A flag wins over the environment
  and the file, and every flag's setting can be given there too.
- A password in a URL is taken out of the process list before anything else is done.
- Exit codes: 0 when all went well, 1 when what was to be shown does not hold (for `check-config`:
  that the settings are right) or standard output does not take it, or what was to be started cannot
  be just now, 2 when the command line, a setting or the machine is at fault: then a line on
  standard error for each cause. 130 by Ctrl-C.
- Help lists the flags a command uses; it accepts, and ignores, the rest of `serve`'s.
"""

from __future__ import annotations

import argparse
import errno
import logging
import os
import signal
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NoReturn

from sqlcache import __version__
from sqlcache.commands.terminal import printable
from sqlcache.errors import ConfigError, NotNow, SqlcacheError
from sqlcache.process import logs
from sqlcache.settings import MemcachedSettings, Settings
from sqlcache.settings.sources import DEFAULT_FILE, SHORT_NAMES, Loaded, load, without_login

_WRONG: Final = 1
_NOT_NOW: Final = 1
_FAULT: Final = 2
_OF_OUTPUT: Final = frozenset((errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO))
"""What may be wrong with standard output; of a file it is said which."""
_STOPPED: Final = 128 + signal.SIGINT
_NO_STORE: Final[Mapping[str, object]] = {"memcached": ["memory"], "workers": 1}
_NOBODY: Final[Mapping[str, object]] = {"upstream": "mysql://nobody@127.0.0.1", **_NO_STORE}
"""Settings that must be given and that a command has no use for, as flags."""

# What commands go by that ask others. The one who asks may not be let to read all that the settings
# of the one that runs name, as its password.
_ADDRESS: Final = frozenset(("admin.listen", "proxy.listen"))
_DOOR: Final = _ADDRESS | {"admin.token", "admin.token_file"}
_NODES: Final = frozenset(
    f"memcached.{name}" for name in MemcachedSettings.model_fields if "secret" not in name
)

log = logging.getLogger(__name__)

_SHOWN: Final = {
    "statements": "what a running sqlcache has answered statements by, and why not from the cache",
    "tables": "which tables are read from its cache, written and invalidated",
    "nodes": "its memcached nodes, and how many of its processes are without each",
    "sessions": "the clients that are connected to it, and why they have no hits",
    "events": "what has happened to it lately",
}

_Command = Callable[[argparse.Namespace], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command (of `sys.argv`, unless given) and returns the process's exit code."""
    if arguments is None:
        _hide_login()
    code = 0
    try:
        code = _run_command(arguments)
        _write_out()
    except KeyboardInterrupt:
        return _STOPPED
    except OSError as error:
        if sys.stdout is None or error.errno not in _OF_OUTPUT or error.filename is not None:
            raise
        # Python would fail once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # whoever read our output has gone
            return code or _FAULT
        print(f"sqlcache: standard output: {error.strerror}", file=sys.stderr)
        return code or _WRONG
    return code


def _run_command(arguments: Sequence[str] | None) -> int:
    try:
        options = make_parser().parse_args(arguments)
        command: _Command = options.command
        return command(options)
    except SqlcacheError as error:
        _complain(error)
        return _FAULT
    except KeyboardInterrupt:
        return _STOPPED
    except SystemExit:  # help, which is printed, or a wrong command line, which prints nothing
        _write_out()
        raise


def _write_out() -> None:
    """What was printed, while it can be said that this fails."""
    if sys.stdout is not None:
        sys.stdout.flush()  # unlike `print`, which has an empty text written, too


def _complain(error: SqlcacheError) -> None:
    for line in str(error).splitlines():
        print(f"sqlcache: {printable(line)}", file=sys.stderr)


def _serve(options: argparse.Namespace) -> int:
    # Only here, like each command's: the others start faster without it.
    from sqlcache.process.serving import serve

    return _run(options, serve)


def _invalidate(options: argparse.Namespace) -> int:
    from sqlcache.process.serving import invalidate

    return _run(options, invalidate)


def _run(
    options: argparse.Namespace, serve: Callable[[Settings, Callable[[], Settings]], int]
) -> int:
    loaded = _load(options)
    logs.configure(loaded.settings.log.level, loaded.settings.log.format)
    for warning in loaded.warnings:
        log.warning("variable not understood reason=%s", warning)

    def read() -> Settings:
        nonlocal loaded
        loaded = _load(options, had_file=loaded.has_file)
        return loaded.settings

    try:
        return serve(loaded.settings, read)
    except SqlcacheError as error:
        for line in str(error).splitlines():
            log.error("not started reason=%s", line)
        return _NOT_NOW if isinstance(error, NotNow) else _FAULT


def _check_config(options: argparse.Namespace) -> int:
    """Prints every setting and where it came from, or what is wrong."""
    from sqlcache.implementation import IMPLEMENTATION

    try:
        settings = _print_settings(options)
        print(f"the kernel is {IMPLEMENTATION}")
        print("all settings are right")
        if not options.connect:
            return 0
        from sqlcache.commands.connect_check import run

        return run(settings)
    except ConfigError as error:
        _complain(error)
        return _WRONG


def _print_settings(options: argparse.Namespace) -> Settings:
    from sqlcache.rules import policy_of
    from sqlcache.tls import client_tls, upstream_tls

    settings, sources, warnings, _ = _load(options)
    policy_of(settings)
    client_tls(settings)
    upstream_tls(settings)
    for path, value in settings.items():
        shown = ", ".join(value) if isinstance(value, tuple) else value
        source = sources.get(path) or sources.get(path.partition("[")[0], "default")
        print(f"{path} = {'none' if shown is None else shown}  ({source})")
    for warning in warnings:
        print(f"warning: {warning}")
    return settings


def _healthcheck(options: argparse.Namespace) -> int:
    from sqlcache.commands.healthcheck import run

    return run(_asking(options, _ADDRESS))


def _stats(options: argparse.Namespace) -> int:
    if not options.shown and (options.json or options.sort is not None):
        raise ConfigError("--sort and --json: expected a list beside them, as in --statements")
    if options.suggest:
        from sqlcache.commands.suggestions import run as suggest

        return suggest(_asking(options, _DOOR), options.limit)
    if options.shown:
        from sqlcache.commands.remote import show

        settings = _asking(options, _DOOR)
        sort, limit = options.sort, options.limit
        return show(settings, options.shown, sort=sort, limit=limit, as_json=options.json)
    from sqlcache.commands.stats import run

    return run(_asking(options, _NODES), options.table)


def _top(options: argparse.Namespace) -> int:
    from sqlcache.commands.top import run

    return run(_asking(options, _DOOR))


def _flush(options: argparse.Namespace) -> int:
    from sqlcache.commands.remote import flush

    what = {name: getattr(options, name) for name in ("table", "schema", "all")}
    return flush(_asking(options, _DOOR), {name: said for name, said in what.items() if said})


def _save(options: argparse.Namespace) -> int:
    from sqlcache.commands.moving import save

    return save(_load(options).settings, options.file)


def _load_saved(options: argparse.Namespace) -> int:
    from sqlcache.commands.moving import load as load_saved

    return load_saved(_load(options).settings, options.file)


def _explain(options: argparse.Namespace) -> int:
    asked = options.statement, options.schema, options.user
    if options.admin is not None:
        from sqlcache.commands.explain_remotely import run as run_remotely

        return run_remotely(_asking(options, _DOOR), *asked)
    from sqlcache.commands.explain import run

    return run(_load(options, _NO_STORE).settings, *asked)


def _init(options: argparse.Namespace) -> int:
    from sqlcache.commands.first_files import Wanted, run

    wanted = Wanted(
        upstream=options.upstream,
        user=options.user,
        password_file=options.password_file,
        listen=options.listen,
        memcached=tuple(options.memcached or ()),
        admin=options.admin,
    )
    return run(wanted, options.dir, force=options.force)


def _completions(options: argparse.Namespace) -> int:
    from sqlcache.commands.completions import run

    return run(make_parser(), options.shell)


def _demo(options: argparse.Namespace) -> int:
    from sqlcache.demo.run import run  # only here: it needs what no other command does

    return run(rows=options.rows, reads=options.reads, keep=options.keep)


def _hide_login() -> None:
    """Everyone on the machine can read the process list."""
    if any("://" in each for each in sys.argv):
        # Else it writes over what /proc tells of the environment. The new title is the shorter one.
        os.environ["SPT_NOENV"] = "1"
        from setproctitle import setproctitle  # only here: hardly anyone needs it

        title = " ".join(map(without_login, sys.orig_argv))
        setproctitle(title.encode(errors="replace").decode())  # a statement may be in any encoding


def _load(
    options: argparse.Namespace,
    instead: Mapping[str, object] = MappingProxyType({}),
    *,
    had_file: bool = False,
) -> Loaded:
    """The settings; `instead` has flags in place of what was given. `had_file`: see `load`."""
    flags = {name: getattr(options, name) for name in SHORT_NAMES} | dict(instead)
    return load(options.config, os.environ, flags, had_file=had_file)


def _asking(options: argparse.Namespace, only: frozenset[str]) -> Settings:
    """The settings by which others are asked, as these paths have them; the rest is made up."""
    flags = {name: getattr(options, name) for name, path in SHORT_NAMES.items() if path in only}
    made_up = {name: value for name, value in _NOBODY.items() if SHORT_NAMES[name] not in only}
    return load(options.config, os.environ, flags | made_up, only=only).settings


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
    """Of the whole command line; what it parses has `command`, which runs it."""
    parser = _Parser(
        prog="sqlcache",
        description="A caching proxy for SQL reads: change one address, and reads get fast.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="say which one this is")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(name: str, command: Callable[[argparse.Namespace], int], tells: str) -> _Parser:
        added = commands.add_parser(name, help=tells)
        added.set_defaults(command=command)
        return added

    _add_setting_flags(add("serve", _serve, "run the proxy"), SHORT_NAMES)
    _add_setting_flags(
        add("invalidate", _invalidate, "follow MySQL's binary log for a fleet, and serve nobody"),
        ("upstream", "memcached", "admin", "log_level"),
    )
    health = add("healthcheck", _healthcheck, "ask a running sqlcache if it is ready")
    _add_setting_flags(health, ("admin",))
    check = add("check-config", _check_config, "say what the settings are, or what is wrong")
    check.add_argument(
        "--connect", action="store_true", help="ask MySQL and memcached, too, and for the rights"
    )
    _add_setting_flags(check, SHORT_NAMES)
    _fill_stats(add("stats", _stats, "say what memcached holds, or what of one table"))
    top = add("top", _top, "watch a running sqlcache, in the terminal")
    _add_setting_flags(top, ("admin",))
    _fill_flush(add("flush", _flush, "have a running sqlcache forget answers"))
    save = add("save", _save, "write what memcached remembers into a file")
    load_saved = add("load", _load_saved, "give an empty memcached what a file has")
    for each in (save, load_saved):
        each.add_argument("file", metavar="FILE", type=Path, help="with all answers: keep it safe")
        _add_setting_flags(each, ("upstream", "memcached", "binlog"))
    _fill_explain(add("explain", _explain, "say what becomes of a statement, and why"))
    _fill_init(add("init", _init, "write the files that a new installation needs"))
    completions = add("completions", _completions, "print a script that completes commands")
    shells = ("bash", "zsh", "fish")
    completions.add_argument("shell", metavar="SHELL", choices=shells, help=", ".join(shells))
    _fill_demo(add("demo", _demo, "measure reads with and without sqlcache"))
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
    _add_setting_flags(stats, ("memcached", "admin"))


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
