"""Runs the test suites that drivers bring along, directly and through sqlcache.

    python -m tests.drivers.run --server mariadb [--suite go] [--folder DIR]

Lists the tests that pass directly and fail through sqlcache. The suites come from the package
registries, by their ordinary clients, and are unpacked in the folder:

- `go`: go-sql-driver/mysql, with TLS and compression left to the server that offers them
- `aiomysql` and `mysqlclient`: from their source distributions
- `sqlalchemy`: the suite for dialects that SQLAlchemy itself brings along

What a suite does not find on this machine (go, pip's access to its index) is an error.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from sqlcache.demo.servers import (
    HOST,
    PrivateMariaDB,
    PrivateMemcached,
    PrivateSqlcache,
    PrivateSqlServer,
)
from tests.servers import PATIENT, PrivateMySQL

_DEADLINE_S = 900
_ACCOUNT, _PASSWORD = "drivers", "drivers"
_GO_DRIVER = "github.com/go-sql-driver/mysql"

_COUNTERS = ("sqlcache_statements_relayed_total", "sqlcache_hits_total")

Outcomes = dict[str, str]
"""Each test's name and what became of it: `pass`, `fail` or `skip`."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a suite connects to: the server or sqlcache before it."""

    port: int
    url_name: str


def _ran(command: list[str], folder: Path, **environment: str) -> str:
    """What a command printed; that tests fail is no error, and one that hangs is cut off."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_DEADLINE_S,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        return (late.stdout or b"").decode(errors="replace")
    return done.stdout


def _unpacked(distribution: str, folder: Path) -> Path:
    """The folder of a Python package's source distribution."""
    fetched = folder / f"{distribution}-sdist"
    if not fetched.exists():
        fetched.mkdir(parents=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--no-binary", ":all:", "--dest", str(fetched), distribution]
        subprocess.run(command, check=True)
        (archive,) = fetched.glob("*.tar.gz")
        with tarfile.open(archive) as opened:
            opened.extractall(fetched, filter="data")
    (source,) = (path for path in fetched.iterdir() if path.is_dir())
    return source


_PYTEST_LINE = re.compile(r"^(PASSED|FAILED|ERROR|SKIPPED) (\S+.*?)(?: - .*)?$", re.MULTILINE)
_PYTEST_WORDS = {"PASSED": "pass", "FAILED": "fail", "ERROR": "fail", "SKIPPED": "skip"}


def _pytest(folder: Path, *arguments: str, **environment: str) -> Outcomes:
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider"]
    output = _ran([*command, "--timeout=30", *arguments], folder, **environment)
    (folder / "last.log").write_text(output)
    return {name: _PYTEST_WORDS[word] for word, name in _PYTEST_LINE.findall(output)}


# The suites.


def go(place: Place, folder: Path) -> Outcomes:
    source = folder / "go"
    if not source.exists():
        source.mkdir(parents=True)
        subprocess.run(["go", "mod", "init", "drivers"], cwd=source, check=True)
        command = ["go", "mod", "download", "-json", f"{_GO_DRIVER}@latest"]
        said = subprocess.run(command, cwd=source, check=True, capture_output=True).stdout
        shutil.rmtree(source)
        shutil.copytree(json.loads(said)["Dir"], source)
        subprocess.run(["chmod", "-R", "u+w", str(source)], check=True)
    output = _ran(
        ["go", "test", "-json", "-count=1", "-timeout=10m", "."],
        source,
        MYSQL_TEST_USER=_ACCOUNT,
        MYSQL_TEST_PASS=_PASSWORD,
        MYSQL_TEST_PROT="tcp",
        MYSQL_TEST_ADDR=f"{HOST}:{place.port}",
        MYSQL_TEST_DBNAME="gotest",
    )
    (source / "last.log").write_text(output)
    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    ended = [each for each in events if each.get("Test")]
    return {e["Test"]: e["Action"] for e in ended if e["Action"] in ("pass", "fail", "skip")}


def aiomysql(place: Place, folder: Path) -> Outcomes:
    source = _unpacked("aiomysql", folder)
    conftest = source / "tests" / "conftest.py"
    # Neither the server nor sqlcache has the certificate of the authors' own server.
    plain = re.sub(r'\n +server_params\["ssl"\] = ctx', "", conftest.read_text())
    plain = plain.replace(".startswith('TLS')", " is not None")
    conftest.write_text(plain.replace("'user': 'root'", f"'user': '{_ACCOUNT}'"))
    return _pytest(
        source,
        f"--mysql-address=it={HOST}:{place.port}",
        "--override-ini=filterwarnings=default",
        "--ignore=tests/sa",  # needs a SQLAlchemy of years ago, and leaves locks where it fails
        "tests",
        MYSQL_ROOT_PASSWORD=_PASSWORD,
    )


def mysqlclient(place: Place, folder: Path) -> Outcomes:
    source = _unpacked("mysqlclient", folder)
    (source / "tests" / "it.cnf").write_text(
        f"[MySQLdb-tests]\nhost={HOST}\nport={place.port}\nuser={_ACCOUNT}\n"
        f"password={_PASSWORD}\ndatabase=mysqldb_test\ndefault-character-set=utf8mb4\n"
    )
    return _pytest(source, "tests", TESTDB="it.cnf")


_SQLALCHEMY_CONFTEST = """
from sqlalchemy.dialects import registry
import pytest
pytest.register_assert_rewrite("sqlalchemy.testing.assertions")
from sqlalchemy.testing.plugin.pytestplugin import *
"""
_SQLALCHEMY_CONFIG = """
[sqla_testing]
requirement_cls = sqlalchemy.testing.requirements:SuiteRequirements
profile_file = profiles.txt
[db]
"""


def sqlalchemy(place: Place, folder: Path) -> Outcomes:
    source = folder / "sqlalchemy"
    source.mkdir(parents=True, exist_ok=True)
    (source / "conftest.py").write_text(_SQLALCHEMY_CONFTEST)
    (source / "test_suite.py").write_text("from sqlalchemy.testing.suite import *\n")
    (source / "setup.cfg").write_text(_SQLALCHEMY_CONFIG)
    url = f"{place.url_name}+pymysql://{_ACCOUNT}:{_PASSWORD}@{HOST}:{place.port}/sa_test"
    return _pytest(source, "--dburi", f"{url}?charset=utf8mb4", "test_suite.py")


SUITES: Mapping[str, Callable[[Place, Path], Outcomes]] = {
    "go": go,
    "aiomysql": aiomysql,
    "mysqlclient": mysqlclient,
    "sqlalchemy": sqlalchemy,
}


def prepare(upstream: PrivateSqlServer) -> None:
    """The account and schemas the suites want to find. Also makes MySQL remember the password."""
    names = ("gotest", "mysqldb_test", "sa_test", "test_schema", "test_schema_2")
    made = "; ".join(
        f"DROP DATABASE IF EXISTS {name}; CREATE DATABASE {name} CHARACTER SET utf8mb4"
        for name in names
    )
    upstream.sql(made)
    # A test that fails may leave locks, and others are not to wait for them.
    upstream.sql("SET GLOBAL lock_wait_timeout = 5; SET GLOBAL innodb_lock_wait_timeout = 5")
    upstream.sql(
        f"DROP USER IF EXISTS {_ACCOUNT}; CREATE USER {_ACCOUNT} IDENTIFIED BY '{_PASSWORD}';"
        f"GRANT ALL ON *.* TO {_ACCOUNT} WITH GRANT OPTION"
    )
    upstream.connect(user=_ACCOUNT, password=_PASSWORD).close()


def compare(name: str, upstream: PrivateSqlServer, proxy: PrivateSqlcache, folder: Path) -> bool:
    """Runs a suite both ways and says what differs; whether all that passed still does."""
    url_name = "mariadb" if upstream.name == "mariadbd" else "mysql"
    prepare(upstream)
    direct = SUITES[name](Place(upstream.port, url_name), folder)
    prepare(upstream)
    before = proxy.metrics()
    proxied = SUITES[name](Place(proxy.port, url_name), folder)
    after = proxy.metrics()
    relayed, hits = (after[each] - before[each] for each in _COUNTERS)
    passed = [test for test, outcome in direct.items() if outcome == "pass"]
    lost = [test for test in passed if proxied.get(test) != "pass"]
    print(
        f"{name} on {upstream.name}: {len(direct)} tests, {len(passed)} pass directly,"
        f" {len(passed) - len(lost)} of these through sqlcache,"
        f" which relayed {relayed:.0f} statements and had {hits:.0f} hits",
        flush=True,
    )
    for test in lost:
        print(f"  {proxied.get(test, 'not run')}: {test}", flush=True)
    return bool(passed) and not lost


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs drivers' own tests through sqlcache.")
    parser.add_argument("--server", choices=("mariadb", "mysql"), default="mariadb")
    parser.add_argument("--suite", choices=sorted(SUITES), action="append")
    parser.add_argument("--folder", type=Path, help="where suites are unpacked, and kept")
    options = parser.parse_args()
    kind = PrivateMariaDB if options.server == "mariadb" else PrivateMySQL
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        upstream = stack.enter_context(kind(scratch / "upstream"))
        memcached = stack.enter_context(PrivateMemcached(scratch / "memcached"))
        proxy = PrivateSqlcache(
            scratch / "sqlcache", upstream.service_url, (memcached.address,), **PATIENT
        )
        stack.enter_context(proxy)
        folder = options.folder or scratch / "suites"
        same = [
            compare(name, upstream, proxy, folder.resolve())
            for name in options.suite or list(SUITES)
        ]
        print(proxy.log_text() if "Traceback" in proxy.log_text() else "", end="")
    return not all(same)


if __name__ == "__main__":
    sys.exit(main())
