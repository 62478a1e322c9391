"""Where settings come from: `sqlcache.toml`, the environment, flags. The later of these wins.

- Names of settings that there are not are refused: a typing error never passes for a default. Of
  variables that only begin as ours do, people are told: others make such, too.
- What is wrong is said in one sentence that names the setting, its source and what was expected.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ValidationError

from sqlcache.errors import ConfigError
from sqlcache.settings import LISTS, Settings
from sqlcache.settings.routines import RoutineSettings
from sqlcache.settings.rules import RuleSettings
from sqlcache.settings.values import OrAuto

DEFAULT_FILE: Final = Path("sqlcache.toml")

# Flags and the short environment variables (`--listen`, SQLCACHE_LISTEN) and what they set.
SHORT_NAMES: Final[Mapping[str, str]] = {
    "listen": "proxy.listen",
    "upstream": "upstream.url",
    "memcached": "memcached.nodes",
    "admin": "admin.listen",
    "take_over": "proxy.take_over",
    "workers": "proxy.workers",
    "tls_certificate": "proxy.tls_certificate",
    "tls_key": "proxy.tls_key",
    "log_level": "log.level",
    "binlog": "binlog.follow",
    "when_tags_unreachable": "cache.when_tags_unreachable",
}

_ENVIRONMENT_PREFIX: Final = "SQLCACHE_"
_FILE_VARIABLE: Final = _ENVIRONMENT_PREFIX + "CONFIG"
_OTHER_VARIABLES: Final = (_FILE_VARIABLE, _ENVIRONMENT_PREFIX + "IMPL")
"""They are ours, and no settings."""

_OF_LISTS: Final = tuple(f"{_ENVIRONMENT_PREFIX}{name}__".upper() for name in LISTS)

_SECRETS: Final = frozenset(("upstream.url", "memcached.secret", "admin.token"))
"""What is given for these is in no message; the URL may hold a password."""

_Given = dict[str, tuple[object, str]]  # a setting's path -> its value, and where from


def without_login(text: str) -> str:
    """`text` with what may be user and password of a URL taken out, for messages."""
    return re.sub(r"//.*@", "//***@", text, flags=re.DOTALL)


class Loaded(NamedTuple):
    """Settings, and for each that was given where from, by its path; the others are defaults.

    `warnings` are sentences about what was given and is no setting; `has_file` is whether a file
    gave any.
    """

    settings: Settings
    sources: Mapping[str, str]
    warnings: tuple[str, ...] = ()
    has_file: bool = False


def load(
    config: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    *,
    only: Container[str] | None = None,
    had_file: bool = False,
) -> Loaded:
    """Settings from a file, the environment and flags.

    The file is `config`, else what SQLCACHE_CONFIG names, else `sqlcache.toml` here, if any.
    `flags` are by the names of SHORT_NAMES; those that are None were not given. `only`: the
    sections and paths, if not all, that are taken from file and environment; others are not looked
    at, nor are files that they name. `had_file`: there was a file with settings before, which is
    not to be without any now: what it said, as that a table is not cached, is not thereby revoked.

    Raises: ConfigError, a line for each thing that is wrong, then one for each warning.
    """
    environment = environment or {}
    if config is None and (named := environment.get(_FILE_VARIABLE)):
        config = Path(named)
    from_file = _from_file(config, had_file=had_file)
    given = from_file | _from_environment(environment)
    if only is not None:
        taken = (path for path in given if path in only or path.partition(".")[0] in only)
        given = {path: given[path] for path in taken}
    warnings = tuple(_not_understood(environment))
    try:
        loaded = _validated(given | _from_flags(flags or {}))
    except ConfigError as error:  # one of them may have been meant for what is not set
        raise ConfigError("\n".join((str(error), *warnings))) from None
    return loaded._replace(warnings=warnings, has_file=bool(from_file))


def from_arguments(arguments: Mapping[str, object]) -> Settings:
    """Settings from values by their path, such as `cache.ttl_s`, and from nowhere else.

    Raises: ConfigError, a line for each thing that is wrong.
    """
    return _validated({path: (value, "argument") for path, value in arguments.items()}).settings


def _validated(given: _Given) -> Loaded:
    sources = {path: source for path, (_, source) in given.items()}
    nested: dict[str, Any] = {
        section: {} for section in Settings.model_fields if section not in LISTS
    }
    for path, (value, _) in given.items():
        section, _, name = path.partition(".")
        if name:
            nested.setdefault(section, {})[name] = value
        else:
            nested[section] = value
    try:
        return Loaded(Settings.model_validate(nested), sources)
    except ValidationError as error:
        lines = [_sentence(dict(item), sources) for item in error.errors()]
        raise ConfigError("\n".join(lines)) from None


def _from_file(config: Path | None, *, had_file: bool) -> _Given:
    file = config or DEFAULT_FILE
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        if config is None and not had_file:
            return {}
        raise ConfigError(f"{file}: there is no such file") from None
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{file}: is not TOML: {error}") from None
    given: _Given = {}
    for section, values in content.items():
        if section in LISTS:
            given[section] = (values, str(file))
            continue
        if not isinstance(values, dict):
            meant = _closest_section(section)
            raise ConfigError(f"{section} ({file}): expected a section, as in [proxy]{meant}")
        given |= {f"{section}.{name}": (value, str(file)) for name, value in values.items()}
    if had_file and not given:
        raise ConfigError(f"{file}: has no settings any more: expected some, or a restart")
    return given


def _from_environment(environment: Mapping[str, str]) -> _Given:
    """SQLCACHE_SECTION__NAME, the short names, and the lists as JSON, such as SQLCACHE_RULES.

    Of other SQLCACHE_ variables `_not_understood` tells.
    """
    given: _Given = {}
    for variable, value in sorted(environment.items()):
        name = variable.removeprefix(_ENVIRONMENT_PREFIX).lower()
        if name == variable.lower():
            continue
        if name in LISTS:
            given[name] = (_from_json(variable, value), variable)
            continue
        path = _path_of(name)
        if path is None:
            continue
        if (section := path.partition(".")[0]) in LISTS:
            whole = f"{_ENVIRONMENT_PREFIX}{section}".upper()
            raise ConfigError(f"{variable}: there is no such setting; {whole} is a list in JSON")
        if path in given:
            raise ConfigError(f"{path}: given twice, by {given[path][1]} and {variable}")
        given[path] = (value, variable)
    return given


def _path_of(name: str) -> str | None:
    """The setting that a variable is about, by its name without our prefix, in lower case."""
    section, _, setting = name.partition("__")
    return f"{section}.{setting}" if section and setting else SHORT_NAMES.get(name)


def _is_of_kubernetes(variable: str) -> bool:
    """Whether it is one of those that each pod gets for a service called sqlcache."""
    return "_SERVICE_" in variable or "_PORT" in variable


def _not_understood(environment: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each variable that begins as ours do and is none, without its value, which may
    be a password. With two underscores between section and name it would have been refused."""
    ours = [f"{_ENVIRONMENT_PREFIX}{path.replace('.', '__')}".upper() for path in _known()]
    ours = [name for name in ours if not name.startswith(_OF_LISTS)]
    ours += [f"{_ENVIRONMENT_PREFIX}{name}".upper() for name in (*SHORT_NAMES, *LISTS)]
    ours += _OTHER_VARIABLES
    plainly = {name[len(_ENVIRONMENT_PREFIX) :].replace("__", "_"): name for name in ours}
    for variable in sorted(environment):
        name = variable.removeprefix(_ENVIRONMENT_PREFIX).upper()
        is_ours = variable.upper() in ours or _path_of(name.lower()) is not None
        if name == variable.upper() or is_ours or _is_of_kubernetes(variable):
            continue
        near = difflib.get_close_matches(name, plainly, n=1)
        meant = f"; did you mean {plainly[near[0]]}?" if near else ""
        yield f"{variable}: there is no such setting, it changes nothing{meant}"


def _from_json(variable: str, text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{variable}: expected a list in JSON: {error}") from None


def _from_flags(flags: Mapping[str, object]) -> _Given:
    return {
        SHORT_NAMES[name]: (value, "--" + name.replace("_", "-"))
        for name, value in flags.items()
        if value is not None
    }


def _sentence(error: Mapping[str, Any], sources: Mapping[str, str]) -> str:
    """What pydantic found, as `path = value (source): what was expected`."""
    section, *rest = error["loc"] or ("",)
    listed = section in LISTS and bool(rest)
    parts = (f"{section}[{rest[0]}]", *rest[1:2]) if listed else (section, *rest[:1])
    path = ".".join(parts)
    given_at = sources.get(section if listed else path)
    if error["type"] == "missing":
        return f"{path}: is not set" + ("" if listed else f"; give it {_ways_to_give(path)}")
    source = f" ({given_at})" if given_at else ""
    if error["type"] == "extra_forbidden":
        if not rest and given_at is None:
            given_at = next(at for name, at in sources.items() if name.startswith(f"{path}."))
            return f"{path} ({given_at}): there is no such section{_closest_section(path)}"
        return f"{path}{source}: there is no such setting{_closest(path)}"
    untold = path in _SECRETS or isinstance(error["input"], Mapping)  # which may be long
    value = f" = {without_login(str(error['input']))}" if given_at and not untold else ""
    subject = f"{path}{value}{source}: " if path else ""
    return subject + _expected(error) + (", or auto" if _may_be_auto(path) else "")


def _may_be_auto(path: str) -> bool:
    section, _, name = path.partition(".")
    field = Settings.model_fields.get(section)
    model = None if field is None else field.annotation
    if not (name and isinstance(model, type) and issubclass(model, BaseModel)):
        return False
    return OrAuto in model.model_fields[name].metadata


def _ways_to_give(path: str) -> str:
    section, _, name = path.partition(".")
    flag = next((short for short, long in SHORT_NAMES.items() if long == path), None)
    variable = f"{_ENVIRONMENT_PREFIX}{section}__{name}".upper()
    ways = f"as {variable} or as {name} in section [{section}] of {DEFAULT_FILE}"
    return f"as --{flag}, {ways}" if flag else ways


def _closest(path: str) -> str:
    number = re.search(r"\[.*\]", path)
    plain = path.replace(number[0], "") if number else path
    known = [each for each in _known() if (each.partition(".")[0] in LISTS) == bool(number)]
    found = [each for each in known if each.endswith(f".{path}")]  # it lacks its section
    found = found or difflib.get_close_matches(plain, known, n=1)
    if not found:
        return ""
    section, _, name = found[0].partition(".")
    return f"; did you mean {section}{number[0] if number else ''}.{name}?"


def _closest_section(name: str) -> str:
    found = difflib.get_close_matches(name, Settings.model_fields, n=1)
    if not found or found[0] == name:
        return ""
    return f"; did you mean {f'[[{found[0]}]]' if found[0] in LISTS else f'[{found[0]}]'}?"


def _known() -> list[str]:
    """Every setting's path; those of a list without their number."""
    sections = {name: info.annotation for name, info in Settings.model_fields.items()}
    sections |= {"rules": RuleSettings, "routines": RoutineSettings}
    return [
        f"{section}.{info.alias or name}"
        for section, model in sections.items()
        if isinstance(model, type) and issubclass(model, BaseModel)
        for name, info in model.model_fields.items()
    ]


def _expected(error: Mapping[str, Any]) -> str:
    kind, path = error["type"], error["loc"]
    if kind in ("list_type", "tuple_type") and path[-1] in LISTS:
        return f"expected a list, as [[{path[-1]}]] makes one"
    if kind == "int_parsing" and str(path[-1]).endswith("_bytes"):
        return "expected a whole number of bytes, as 67108864 or 64MiB"
    sentence = _EXPECTED.get(kind, "expected something else: {msg}")
    return sentence.format_map({**error, **error.get("ctx", {})})


_EXPECTED: Final = {
    "value_error": "{error}",
    "greater_than_equal": "expected at least {ge}",
    "greater_than": "expected more than {gt:g}",
    "less_than_equal": "expected at most {le}",
    "literal_error": "expected {expected}",
    "int_parsing": "expected a whole number",
    "int_type": "expected a whole number",
    "int_from_float": "expected a whole number",
    "int_parsing_size": "expected a whole number of fewer digits",
    "float_parsing": "expected a number",
    "float_type": "expected a number",
    "finite_number": "expected a number",
    "bool_parsing": "expected true or false",
    "bool_type": "expected true or false",
    "path_type": "expected the path of a file that exists",
    "string_type": "expected a text",
    "string_too_short": "expected a text that is not empty",
    "too_short": "expected at least {min_length} characters",
    "list_type": "expected a list",
    "tuple_type": "expected a list",
    "model_type": "expected settings by their names, as [[{loc[0]}]] makes them",
    "string_pattern_mismatch": "expected 1 to 64 printable ASCII characters without spaces",
}
"""By what pydantic calls the error."""
