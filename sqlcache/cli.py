"""The command line: `sqlcache serve`, `invalidate`, `init`, `healthcheck`, `check-config`,
`explain`, `stats`, `top`, `flush`, `save`, `load`, `completions`, `demo`.

- A password in a URL is taken out of the process list before anything else is done.
- Exit codes: 0 when all went well, 1 when what was to be shown does not hold (for `check-config`:
  that the settings are right) or standard output does not take it, or what was to be started cannot
  be just now, 2 when the command line, a setting or the machine is at fault: then a line on
  standard error for each cause. 130 by Ctrl-C.
"""

from __future__ import annotations

import argparse
import errno
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from sqlcache.commands.parser import make_parser
from sqlcache.commands.terminal import printable
from sqlcache.errors import ConfigError, NotNow, SqlcacheError
from sqlcache.process import logs
from sqlcache.settings import MemcachedSettings, Settings
from sqlcache.settings.sources import SHORT_NAMES, Loaded, load, without_login

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
        return _COMMANDS[options.command](options)
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


_COMMANDS: Final[Mapping[str, _Command]] = {
    "serve": _serve,
    "invalidate": _invalidate,
    "healthcheck": _healthcheck,
    "check-config": _check_config,
    "stats": _stats,
    "top": _top,
    "flush": _flush,
    "save": _save,
    "load": _load_saved,
    "explain": _explain,
    "init": _init,
    "completions": _completions,
    "demo": _demo,
}
