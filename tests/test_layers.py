"""The layers of the design, checked from the imports of every file.

ground <- core <- connections <- engine <- plans <- doors <- top: a file imports from its own layer
or those to the left of it. Core files are sans-IO. A door imports no other door.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from enum import IntEnum
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "sqlcache"

# What would let a clock, chance, a peer or the operator into the core.
IMPURE = {
    *("asyncio", "uvloop", "socket", "ssl", "selectors", "os"),
    *("time", "random", "secrets", "sqlcache.settings"),
}


class Layer(IntEnum):
    GROUND = 0
    CORE = 1
    CONNECTIONS = 2
    ENGINE = 3
    PLANS = 4
    DOORS = 5
    TOP = 6


# The longest prefix of a module's name decides.
LAYERS = {
    "sqlcache": Layer.TOP,
    "sqlcache.errors": Layer.GROUND,
    "sqlcache.settings": Layer.GROUND,
    "sqlcache.settings.sources": Layer.TOP,
    "sqlcache.driver": Layer.GROUND,
    "sqlcache.callbacks": Layer.GROUND,
    "sqlcache.metric_kinds": Layer.GROUND,
    "sqlcache.metrics": Layer.GROUND,
    "sqlcache.patience": Layer.GROUND,
    "sqlcache.statement_counts": Layer.GROUND,
    "sqlcache.boot_clock": Layer.GROUND,
    "sqlcache.table_counts": Layer.GROUND,
    "sqlcache.implementation": Layer.GROUND,
    "sqlcache.process": Layer.TOP,
    "sqlcache.process.cgroup": Layer.GROUND,
    "sqlcache.process.events": Layer.GROUND,
    "sqlcache.process.forks": Layer.GROUND,
    "sqlcache.process.logs": Layer.GROUND,
    "sqlcache.process.open_files": Layer.GROUND,
    "sqlcache.process.seats": Layer.GROUND,
    "sqlcache.process.usage": Layer.GROUND,
    "sqlcache.host_names": Layer.CONNECTIONS,
    "sqlcache.upstream_errors": Layer.CONNECTIONS,
    "sqlcache.service": Layer.CONNECTIONS,
    "sqlcache.tasks": Layer.GROUND,
    "sqlcache.tls": Layer.GROUND,
    "sqlcache.rules": Layer.CONNECTIONS,
    "sqlcache.kernel": Layer.CORE,
    "sqlcache._kernel": Layer.CORE,
    "sqlcache.mysql": Layer.CORE,
    "sqlcache.mysql.compression": Layer.CONNECTIONS,
    "sqlcache.mysql.connection": Layer.CONNECTIONS,
    "sqlcache.mysql.sockets": Layer.CONNECTIONS,
    "sqlcache.mysql.tls": Layer.CONNECTIONS,
    "sqlcache.mysql.transport": Layer.CONNECTIONS,
    "sqlcache.sql": Layer.CORE,
    "sqlcache.sql.catalog_loader": Layer.CONNECTIONS,
    "sqlcache.memcache": Layer.CONNECTIONS,
    "sqlcache.memcache.protocol": Layer.CORE,
    "sqlcache.memcache.ring": Layer.CORE,
    "sqlcache.cache": Layer.ENGINE,
    "sqlcache.cache.keys": Layer.CORE,
    "sqlcache.cache.tags": Layer.CORE,
    "sqlcache.cache.log_records": Layer.CORE,
    "sqlcache.cache.entry": Layer.CORE,
    "sqlcache.plan": Layer.PLANS,
    "sqlcache.plan.state": Layer.CORE,
    "sqlcache.plan.quotas": Layer.CORE,
    "sqlcache.plan.rights": Layer.CORE,
    "sqlcache.plan.silence": Layer.CORE,
    "sqlcache.plan.temporary": Layer.CORE,
    "sqlcache.plan.variables": Layer.CORE,
    "sqlcache.proxy": Layer.DOORS,
    "sqlcache.api": Layer.TOP,  # it embeds the proxy
    "sqlcache.admin": Layer.DOORS,
    "sqlcache.binlog": Layer.DOORS,
    "sqlcache.binlog.change": Layer.CORE,
    "sqlcache.binlog.events": Layer.CORE,
    "sqlcache.binlog.session_settings": Layer.CORE,
    "sqlcache.binlog.transactions": Layer.CORE,
}
DOORS = {"sqlcache.proxy", "sqlcache.admin", "sqlcache.binlog"}


MAPPED = ("api", "binlog", "cache", "commands", "memcache", "plan", "process", "proxy", "service")
NO_MODULES = {"init", "flush", "save", "load", "Cache"}
"""What the maps name as well: commands, and a class."""


@pytest.mark.parametrize("package", MAPPED)
def test_the_map_of_a_package_names_each_of_its_modules_and_no_others(package: str) -> None:
    folder = PACKAGE / package
    told = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    modules = {
        each.stem
        for each in folder.iterdir()
        if each.suffix == ".py" or each.joinpath("__init__.py").exists()
    } - {"__init__"}
    named = set(re.findall(r"`(\w+)`", told))
    assert modules - named == set()
    packages = {each.stem for each in PACKAGE.iterdir()}
    assert named - modules - packages - NO_MODULES == set()


def layer(module: str) -> Layer:
    while module not in LAYERS:
        module = module.rpartition(".")[0]
    return LAYERS[module]


def door(module: str) -> str | None:
    package = ".".join(module.split(".")[:2])
    return package if package in DOORS else None


def imported(module: str, source: str, modules: Mapping[str, str]) -> Iterator[str]:
    """Every module a file imports, wherever in it the import stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = ""
            if node.level:
                is_package = any(other.startswith(f"{module}.") for other in modules)
                parts = module.split(".")
                start = ".".join(parts[: len(parts) - node.level + is_package])
            origin = ".".join(filter(None, (start, node.module)))
            for alias in node.names:
                # `from package import name`: a module of the package, or a name in it.
                member = f"{origin}.{alias.name}"
                yield member if member in modules else origin


def violations(modules: Mapping[str, str]) -> list[str]:
    """What breaks the layers in these modules, given by name with their sources."""
    return [
        f"{module} imports {target}: {why}"
        for module, source in modules.items()
        for target in imported(module, source, modules)
        if (why := wrong(module, target)) is not None
    ]


def wrong(module: str, target: str) -> str | None:
    if layer(module) is Layer.CORE and is_impure(target):
        return "the core is sans-IO"
    if module == "sqlcache" or target == "sqlcache" or not target.startswith("sqlcache."):
        return None  # the package itself only names what is public, and its version
    if layer(target) > layer(module):
        return f"{layer(module).name} may not know {layer(target).name}"
    if door(module) and door(target) and door(module) != door(target):
        return "a door never imports a door"
    return None


def is_impure(target: str) -> bool:
    return any(target == name or target.startswith(f"{name}.") for name in IMPURE)


def sources() -> dict[str, str]:
    found = {}
    for file in PACKAGE.rglob("*.py"):
        parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = file.read_text(encoding="utf-8")
    return found


def test_no_file_of_the_package_breaks_the_layers() -> None:
    assert violations(sources()) == []


def test_aiomysql_is_imported_in_one_place() -> None:
    found = sources()
    importers = [m for m, source in found.items() if "aiomysql" in set(imported(m, source, found))]
    assert importers == ["sqlcache.driver"]


def test_the_files_that_exist_are_really_read() -> None:
    found = sources()
    assert {"sqlcache", "sqlcache.settings", "sqlcache.admin.http"} <= found.keys()
    assert "sqlcache.settings" in set(
        imported("sqlcache.admin.http", found["sqlcache.admin.http"], found)
    )


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("sqlcache.mysql.packets", "import asyncio"),
        ("sqlcache.mysql.packets", "import os.path"),
        ("sqlcache.sql.lexer", "from time import monotonic"),
        ("sqlcache.cache.tags", "def f():\n    import secrets"),
        ("sqlcache.plan.state", "from sqlcache.settings import Settings"),
        ("sqlcache.plan.state", "from sqlcache import settings"),
        ("sqlcache.memcache.ring", "from . import connection"),
        ("sqlcache.memcache.protocol", "from .connection import Connection"),
        ("sqlcache.memcache.connection", "from sqlcache.cache import engine"),
        ("sqlcache.cache.engine", "from sqlcache.proxy.server import Server"),
        ("sqlcache.proxy.server", "import sqlcache.admin.http"),
        ("sqlcache.admin.pages", "from ..proxy import server"),
        ("sqlcache.proxy.server", "import sqlcache.api.cache"),
        ("sqlcache.proxy.server", "from sqlcache.app import serve"),
        ("sqlcache.metrics", "from sqlcache.mysql import packets"),
    ],
)
def test_an_import_that_breaks_the_layers_is_found(module: str, source: str) -> None:
    others = dict.fromkeys(
        (
            *("sqlcache.settings", "sqlcache.mysql.packets", "sqlcache.memcache"),
            *("sqlcache.memcache.connection", "sqlcache.cache.engine", "sqlcache.proxy"),
            *("sqlcache.proxy.server", "sqlcache.admin.http"),
        ),
        "",
    )
    assert len(violations({**others, module: source})) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("sqlcache.mysql.packets", "import struct\nfrom sqlcache.errors import ProtocolError"),
        ("sqlcache.mysql.connection", "import asyncio\nfrom sqlcache.mysql import packets"),
        ("sqlcache.proxy.server", "from sqlcache.plan.state import State"),
        ("sqlcache.metrics", "from sqlcache import __version__"),
        ("sqlcache.app", "from sqlcache.proxy import server\nimport sqlcache.admin.http"),
        ("sqlcache.api.cache", "from sqlcache.app import App\nimport sqlcache.proxy.session"),
        ("sqlcache.sql.lexer", "import timeit\nimport osmium"),
    ],
)
def test_an_import_that_keeps_to_the_layers_is_not_found(module: str, source: str) -> None:
    assert violations({"sqlcache.mysql.packets": "", module: source}) == []
