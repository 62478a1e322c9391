"""The drivers' own test suites, and Django's: where they come from, and how each is run.

They come from the registries, by their ordinary clients, and are unpacked in a folder, once:

- `aiomysql`, `django`, `mysqlclient`, `sqlalchemy`: source distributions, by pip
- `go`: the module go-sql-driver/mysql, by go
- `mysql_async`, `mysql_rust`: the crates mysql_async and mysql, by cargo
- `mysqljs`, `pymysql`: Debian's source packages, by apt-get with lists of its own; what npm and pip
  have of these is without tests
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlcache.demo.servers import HOST
from tests import fetched
from tests.fetched import NotFetched

ACCOUNT, PASSWORD = "drivers", "drivers"

_DEADLINE_S = 1800
_DEBIAN = "deb-src [signed-by={keys}] http://deb.debian.org/debian trixie main\n"
_DEBIAN_KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_GO_DRIVER = "github.com/go-sql-driver/mysql"

Outcomes = dict[str, str]
"""Each test's name and what became of it: `pass`, `fail` or `skip`."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a suite connects to: the server or sqlcache before it."""

    port: int
    is_mariadb: bool


@dataclass(frozen=True, slots=True)
class Suite:
    """`run` gives the outcomes at a place; `folder` is the suites' own, kept between runs."""

    run: Callable[[Place, Path], Outcomes]
    schemas: tuple[str, ...]
    setup: str = ""
    """What it wants to find beside its empty schemas: SQL, run as root."""
    mysql_setup: str = ""
    """What it wants to find in MySQL, and MariaDB has not."""
    only_mariadb: str = ""
    """Why the driver cannot log in to MySQL."""
    fetch: Callable[[Path], object] | None = None
    """Gets all that `run` needs, where the time that it takes counts."""
    times_direct: float | None = None
    """How much longer than directly it may take through sqlcache, where what it does is queries."""


# What they are made of.


def _ran(command: list[str], folder: Path, **environment: str) -> str:
    """What a command printed; that tests fail is no error, and one that hangs is cut off."""
    log = folder / "last.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            process.wait(_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return log.read_text(errors="replace")


def _unpacked(archive: Path) -> Path:
    """The one folder in an archive, unpacked beside it."""
    with tarfile.open(archive) as opened:
        (top,) = {Path(name).parts[0] for name in opened.getnames()}
        opened.extractall(archive.parent, filter="data")
    return archive.parent / top


def _sdist(distribution: str, version: str = "") -> Callable[[Path], Path]:
    """Fetches the source distribution of a Python package, of the newest version or of this."""

    def fetch(scratch: Path) -> Path:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--no-binary", distribution, "--dest", str(scratch)]
        command += [f"{distribution}=={version}" if version else distribution]
        fetched.fetch(command, scratch, f"the source distribution of {distribution}")
        (archive,) = scratch.glob("*.tar.gz")
        return _unpacked(archive)

    return fetch


def _debian(package: str) -> Callable[[Path], Path]:
    """Fetches the upstream archive of a Debian source package, on any machine that has apt-get."""

    def fetch(scratch: Path) -> Path:
        what = f"the Debian source package {package}"
        apt = [fetched.program("apt-get", f"the tests in {what}")]
        if not _DEBIAN_KEYS.exists():
            raise NotFetched(f"{_DEBIAN_KEYS} is missing, by which {what} is verified")
        (scratch / "sources.list").write_text(_DEBIAN.format(keys=_DEBIAN_KEYS))
        apt += fetched.apt_options(scratch)
        apt += ["-o", f"Dir::Etc::SourceList={scratch / 'sources.list'}"]
        apt += ["-o", "Dir::Etc::SourceParts=/dev/null"]
        fetched.fetch([*apt, "update"], scratch, "the list of Debian's source packages")
        command = [*apt, "source", "--download-only", "--tar-only", package]
        try:
            fetched.fetch(command, scratch, what)
        except NotFetched:
            # Its first archive is what we want; parts that others fill in may be missing.
            if not list(scratch.glob("*.orig.tar.*")):
                raise
        (archive,) = scratch.glob("*.orig.tar.*")
        return _unpacked(archive)

    return fetch


def _go_module(scratch: Path) -> Path:
    go = fetched.program("go", "the tests of go-sql-driver/mysql")
    fetched.fetch([go, "mod", "init", "drivers"], scratch, "nothing")
    command = [go, "mod", "download", "-json", f"{_GO_DRIVER}@latest"]
    said = fetched.fetch(command, scratch, f"the module {_GO_DRIVER}")
    source = scratch / "source"
    shutil.copytree(json.loads(said)["Dir"], source)
    _writable(source)
    return source


def _writable(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)


def _crate(name: str) -> Callable[[Path], Path]:
    """Fetches a crate: as what a crate of our own depends on, and cargo then says where it is."""

    def fetch(scratch: Path) -> Path:
        cargo = fetched.program("cargo", f"the tests of the crate {name}")
        fetched.fetch(
            [cargo, "init", "--lib", "--vcs", "none", "--name", "drivers"], scratch, "nothing"
        )
        fetched.fetch([cargo, "add", name], scratch, f"the crate {name}")
        said = fetched.fetch(
            [cargo, "metadata", "--format-version", "1"], scratch, f"the crate {name}"
        )
        packages = json.loads(said)["packages"]
        (manifest,) = (each["manifest_path"] for each in packages if each["name"] == name)
        source = scratch / "source"
        shutil.copytree(Path(manifest).parent, source)
        return source

    return fetch


def _node_package(debian: str, wanted: tuple[str, ...]) -> Callable[[Path], Path]:
    """Fetches a Debian source package of JavaScript, and with npm what it and its tests need."""

    def fetch(scratch: Path) -> Path:
        source = _debian(debian)(scratch)
        npm = fetched.program("npm", f"the tests in the Debian source package {debian}")
        flags = ["--no-audit", "--no-fund", "--no-save", "--ignore-scripts", "--omit=dev"]
        fetched.fetch([npm, "install", *flags, *wanted], source, f"what {debian} depends on")
        return source

    return fetch


# Ways to run tests.

_PYTEST_LINE = re.compile(r"^(PASSED|FAILED|ERROR|SKIPPED) (\S+.*?)(?: - .*)?$", re.MULTILINE)
_PYTEST_WORDS = {"PASSED": "pass", "FAILED": "fail", "ERROR": "fail", "SKIPPED": "skip"}


def _pytest(folder: Path, *arguments: str, **environment: str) -> Outcomes:
    command = [sys.executable, "-m", "pytest", "-q", "-rpfEs", "-p", "no:cacheprovider"]
    # A test that is skipped goes by its reason, which SQLAlchemy joins from sets.
    environment["PYTHONHASHSEED"] = "0"
    output = _ran([*command, "--timeout=60", *arguments], folder, **environment)
    return {name: _PYTEST_WORDS[word] for word, name in _PYTEST_LINE.findall(output)}


_CARGO_TEST = re.compile(r"^test (\S+).* \.\.\. (ok|FAILED|ignored)", re.MULTILINE)
_CARGO_WORDS = {"ok": "pass", "FAILED": "fail", "ignored": "skip"}


def _cargo(
    crate: str, folder: Path, *arguments: str, skip: tuple[str, ...] = (), **environment: str
) -> Outcomes:
    """Tests one at a time, since some of them count what the server does."""
    source = fetched.once(folder, crate, _crate(crate))
    cargo = fetched.program("cargo", f"the tests of the crate {crate}")
    command = [cargo, "test", "--jobs", "2", "--no-fail-fast", *arguments]
    output = _ran(
        [*command, "--", "--test-threads=1", *(f"--skip={each}" for each in skip)],
        source,
        CARGO_TARGET_DIR=str(folder / "cargo-target"),
        **environment,
    )
    return {name: _CARGO_WORDS[word] for name, word in _CARGO_TEST.findall(output)}


# The suites.


# It dials 1.1.1.1 and wants no answer. Where a network gives one, it panics and ends all others.
_GO_SKIPPED = "^TestConnectorReturnsTimeout$"


def _go(place: Place, folder: Path) -> Outcomes:
    output = _ran(
        ["go", "test", "-json", "-count=1", "-timeout=10m", f"-skip={_GO_SKIPPED}", "."],
        fetched.once(folder, "go", _go_module),
        MYSQL_TEST_USER=ACCOUNT,
        MYSQL_TEST_PASS=PASSWORD,
        MYSQL_TEST_PROT="tcp",
        MYSQL_TEST_ADDR=f"{HOST}:{place.port}",
        MYSQL_TEST_DBNAME="gotest",
    )
    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    ended = [each for each in events if each.get("Test")]
    return {e["Test"]: e["Action"] for e in ended if e["Action"] in ("pass", "fail", "skip")}


def _aiomysql(place: Place, folder: Path) -> Outcomes:
    source = fetched.once(folder, "aiomysql", _sdist("aiomysql"))
    conftest = source / "tests" / "conftest.py"
    # Neither the server nor sqlcache has the certificate of the authors' own server.
    plain = re.sub(r'\n +server_params\["ssl"\] = ctx', "", conftest.read_text())
    plain = plain.replace(".startswith('TLS')", " is not None")
    conftest.write_text(plain.replace("'user': 'root'", f"'user': '{ACCOUNT}'"))
    return _pytest(
        source,
        f"--mysql-address=it={HOST}:{place.port}",
        "--override-ini=filterwarnings=default",
        "--ignore=tests/sa",  # needs a SQLAlchemy of years ago, and leaves locks where it fails
        "tests",
        MYSQL_ROOT_PASSWORD=PASSWORD,
    )


# The newest that runs on Python 3.11 and knows of MariaDB 10.5 and MySQL 8.0.11, and all later.
_DJANGO_VERSION = "5.2.19"
# Of its tests/requirements, what tests that are run here would be skipped without.
_DJANGO_NEEDS = ("asgiref", "jinja2", "mysqlclient", "Pillow", "PyYAML", "sqlparse", "tzdata")
# What goes to the database most: its backends, the ORM and migrations. Of the caches only the one
# that is a table, and not all its tests: they sleep, and hide what takes longer elsewhere. Of the
# serializers not the tests that measure how long a parser takes.
_DJANGO_LABELS = """
aggregation aggregation_regress annotations async backends basic bulk_create
cache.tests.CreateCacheTableForDBCacheTests cache.tests.DBCacheTests composite_pk constraints
custom_lookups custom_pk dates datetimes db_functions db_utils defer defer_regress delete
delete_regress expressions expressions_case expressions_window filtered_relation fixtures
force_insert_update foreign_object generic_relations get_or_create indexes inspectdb introspection
lookup m2m_through many_to_many many_to_one migrations model_fields model_inheritance
multiple_database one_to_one ordering prefetch_related proxy_models queries raw_query schema
select_for_update select_related select_related_regress serializers.test_data serializers.test_json
serializers.test_jsonl serializers.test_natural serializers.test_xml serializers.test_yaml servers
test_utils timezones transaction_hooks transactions unmanaged_models update xor_lookups
"""


def _django_source(folder: Path) -> Path:
    """Compiled, which else were part of the first run's time."""

    def fetch(scratch: Path) -> Path:
        source = _sdist("Django", _DJANGO_VERSION)(scratch)
        # Some files of its tests cannot be compiled, and are not meant to be.
        command = [sys.executable, "-m", "compileall", "-q", str(source)]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        return source

    return fetched.once(folder, "django", fetch)


def _django_python(folder: Path) -> Path:
    return fetched.environment(folder, "django-environment", *_DJANGO_NEEDS)


def _fetch_django(folder: Path) -> None:
    _django_source(folder)
    _django_python(folder)


def _django(place: Place, folder: Path) -> Outcomes:
    source = _django_source(folder)
    tests = source / "tests"
    shutil.copy(Path(__file__).with_name("django_settings.py"), tests / "drivers_settings.py")
    outcomes = source / "outcomes.txt"
    outcomes.write_text("")
    options = ["--settings=drivers_settings", "--parallel=1", "--verbosity=1", "--noinput"]
    _ran(
        [str(_django_python(folder)), "runtests.py", *options, *_DJANGO_LABELS.split()],
        tests,
        PYTHONPATH=str(source),
        DRIVERS_HOST=HOST,
        DRIVERS_PORT=str(place.port),
        DRIVERS_ACCOUNT=ACCOUNT,
        DRIVERS_PASSWORD=PASSWORD,
        DRIVERS_OUTCOMES=str(outcomes),
    )
    ended = [line.split(" ", 1) for line in outcomes.read_text().splitlines()]
    return {name: outcome for outcome, name in ended}


def _mysqlclient(place: Place, folder: Path) -> Outcomes:
    source = fetched.once(folder, "mysqlclient", _sdist("mysqlclient"))
    (source / "tests" / "it.cnf").write_text(
        f"[MySQLdb-tests]\nhost={HOST}\nport={place.port}\nuser={ACCOUNT}\n"
        f"password={PASSWORD}\ndatabase=mysqldb_test\ndefault-character-set=utf8mb4\n"
    )
    return _pytest(source, "tests", TESTDB="it.cnf")


def _pymysql(place: Place, folder: Path) -> Outcomes:
    source = fetched.once(folder, "pymysql", _debian("python-pymysql"))
    first = {"host": HOST, "port": place.port, "user": ACCOUNT, "password": PASSWORD}
    first |= {"database": "test1", "use_unicode": True, "local_infile": True}
    second = {"host": HOST, "port": place.port, "database": "test2"}
    second |= {"user": "test2", "password": "some password"}
    databases = source / "pymysql" / "tests" / "databases.json"
    databases.write_text(json.dumps([first, second]))
    logins = source / "tests" / "test_auth.py"
    text = re.sub(r"^port = .*", f"port = {place.port}", logins.read_text(), flags=re.MULTILINE)
    logins.write_text(re.sub(r'"ca": ca, ', "", text))  # neither has the authors' certificate
    return _pytest(source, "pymysql", *([] if place.is_mariadb else ["tests"]))


_PYMYSQL_ACCOUNT = """
DROP USER IF EXISTS test2;
CREATE USER test2 IDENTIFIED BY 'some password';
GRANT ALL ON test2.* TO test2
"""
_PYMYSQL_LOGINS = """
DROP USER IF EXISTS user_sha256, nopass_sha256, user_caching_sha2, nopass_caching_sha2;
CREATE USER
    user_sha256 IDENTIFIED WITH sha256_password BY 'pass_sha256_01234567890123456789',
    nopass_sha256 IDENTIFIED WITH sha256_password,
    user_caching_sha2 IDENTIFIED BY 'pass_caching_sha2_01234567890123456789',
    nopass_caching_sha2 IDENTIFIED WITH caching_sha2_password;
GRANT RELOAD ON *.* TO user_caching_sha2
"""


def _sqlalchemy(place: Place, folder: Path) -> Outcomes:
    """Its own tests of the dialect, and the suite for all dialects."""
    source = fetched.once(folder, "sqlalchemy", _sdist("SQLAlchemy"))
    kind = "mariadb" if place.is_mariadb else "mysql"
    url = f"{kind}+pymysql://{ACCOUNT}:{PASSWORD}@{HOST}:{place.port}/sa_test?charset=utf8mb4"
    tests = ("test/dialect/mysql", "test/dialect/test_all.py", "test/dialect/test_suite.py")
    return _pytest(source, "--maxfail=10000", "--dburi", url, *tests)


# It kills a connection while that is being reset. Which of the two comes first is chance where
# anything stands between: a relay that does no more than copy bytes loses it in 3 of 4 runs.
_MYSQL_ASYNC_SKIPPED = ("conn::pool::test::should_reconnect",)


def _mysql_async(place: Place, folder: Path) -> Outcomes:
    return _cargo(
        "mysql_async",
        folder,
        *("--lib", "--tests", "--features=binlog"),
        skip=_MYSQL_ASYNC_SKIPPED,
        DATABASE_URL=f"mysql://{ACCOUNT}:{PASSWORD}@{HOST}:{place.port}/rust",
    )


def _mysql_rust(place: Place, folder: Path) -> Outcomes:
    url = f"mysql://{ACCOUNT}:{PASSWORD}@{HOST}:{place.port}/rust"
    # The crate leaves out a fixture its tests are compiled with; what needs it fails both ways.
    fixture = (
        fetched.once(folder, "mysql", _crate("mysql")) / "tests/fixtures/server-public-key.pem"
    )
    fixture.parent.mkdir(parents=True, exist_ok=True)
    fixture.touch()
    return _cargo("mysql", folder, "--lib", "--features=binlog", DATABASE_URL=url)


_MYSQLJS_LOGIN = "knows only mysql_native_password, which MySQL has no more"


def _mysqljs(place: Place, folder: Path) -> Outcomes:
    """Each file is a test, that its exit code tells of."""
    wanted = ("after@0.8.2", "seedrandom@3.0.5", "timezone-mock@0.0.7", "utest@0.0.8")
    source = fetched.once(folder, "mysqljs", _node_package("node-mysql", wanted))
    node = fetched.program("node", "the tests of mysqljs")
    outcomes = {}
    for path in sorted((source / "test" / "integration").rglob("test-*.js")):
        script = 'timeout 60 "$0" "$1"; echo "exit $?"'
        output = _ran(
            ["sh", "-c", script, node, str(path)],
            source,
            MYSQL_HOST=HOST,
            MYSQL_PORT=str(place.port),
            MYSQL_USER=ACCOUNT,
            MYSQL_PASSWORD=PASSWORD,
            MYSQL_DATABASE="mysqljs",
        )
        passed = output.endswith("exit 0\n")
        outcome = "skip" if passed and "skipping - " in output else "pass" if passed else "fail"
        outcomes[str(path.relative_to(source))] = outcome
    return outcomes


SUITES: Mapping[str, Suite] = {
    "aiomysql": Suite(_aiomysql, ()),
    "django": Suite(_django, (), fetch=_fetch_django, times_direct=1.5),
    "go": Suite(_go, ("gotest",)),
    "mysql_async": Suite(_mysql_async, ("rust",)),
    "mysql_rust": Suite(_mysql_rust, ("rust",)),
    "mysqlclient": Suite(_mysqlclient, ("mysqldb_test",)),
    "mysqljs": Suite(_mysqljs, ("mysqljs",), only_mariadb=_MYSQLJS_LOGIN),
    "pymysql": Suite(_pymysql, ("test1", "test2"), _PYMYSQL_ACCOUNT, _PYMYSQL_LOGINS),
    "sqlalchemy": Suite(_sqlalchemy, ("sa_test", "test_schema", "test_schema_2")),
}
