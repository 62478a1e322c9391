"""The image that `make image` made: what is in it, and that its own entry point keeps what the
documents promise of a container.

Skipped where there is no image of this checkout; TEST_IMAGE=required, as `make image-test`
has it, makes that a failure.
"""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pymysql
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from sqlcache import __version__
from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateSqlServer, wait_until
from sqlcache.settings import Settings
from sqlcache.settings.sources import SHORT_NAMES
from tests.commands.test_top import left_by_q
from tests.docker.image import ARCHIVE, CHECKOUT, SECRETS, Image, ImageMissing, PrivateContainer
from tests.docker.test_kubernetes import IDLE_BYTES
from tests.servers import PATIENT, MySQLMissing, PrivateMySQL

SOON_S = 20.0
EVERYTHING_FORGOTTEN = 'sqlcache_invalidations_total{kind="root"}'

StartContainer = Callable[..., PrivateContainer]


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    try:
        return Image.unpack(ARCHIVE, tmp_path_factory.mktemp("image"))
    except ImageMissing as missing:
        if os.environ.get("TEST_IMAGE") == "required":
            raise
        pytest.skip(str(missing))


@pytest.fixture
def own_mariadb(tmp_path: Path) -> Iterator[PrivateMariaDB]:
    """One that may be killed: no other test uses it, and it loses nothing."""
    options = ("--innodb-flush-log-at-trx-commit=1",)
    with PrivateMariaDB(tmp_path / "mariadb", options) as server:
        yield server


@pytest.fixture
def container(image: Image, tmp_path: Path) -> Iterator[StartContainer]:
    """`container(server, memcached, user=None, **settings)` starts one and waits until it is up.

    At the test's end each must leave with exit code 0 and no traceback.
    """
    started: list[PrivateContainer] = []

    def start(
        server: PrivateSqlServer,
        memcached: PrivateMemcached,
        user: str | None = None,
        **settings: Any,
    ) -> PrivateContainer:
        made = PrivateContainer(
            tmp_path / f"container-{len(started)}",
            image,
            f"mysql://{server.service_user}@{server.address}",
            (memcached.address,),
            user,
            upstream__password_file=f"{SECRETS}/mysql",
            **(PATIENT | settings),
        )
        made.secret("mysql", server.service_password)
        started.append(made)
        return made.start()

    yield start
    exit_codes = [each.stop() for each in started]
    logs = "\n".join(each.log_text() for each in started)
    assert "Traceback" not in logs, logs
    assert not any(exit_codes), f"exit codes {exit_codes}; the logs say:\n{logs}"


class Client:
    """A table of one row, `t`, and a session through the container that reads and writes it."""

    def __init__(self, served: PrivateContainer, server: PrivateSqlServer, schema: str) -> None:
        self._served = served
        self._login = {"user": server.user, "password": server.password, "database": schema}
        server.sql("CREATE TABLE t (v int NOT NULL); INSERT INTO t VALUES (1)", schema)

    def connect(self) -> pymysql.Connection[Any]:
        return self._served.connect(**self._login)

    def value(self) -> int:
        with closing(self.connect()) as session, session.cursor() as cursor:
            cursor.execute("SELECT v FROM t")
            ((value,),) = cursor.fetchall()
            return int(value)

    def sets(self, value: int) -> None:
        with closing(self.connect()) as session, session.cursor() as cursor:
            cursor.execute("UPDATE t SET v = %s", (value,))

    def hits(self) -> float:
        return self._served.metrics()["sqlcache_hits_total"]

    def has_a_hit(self) -> bool:
        before = self.hits()
        self.value()
        return self.hits() > before


def is_ready(served: PrivateContainer) -> bool:
    return served.readiness()["ready"] is True


# Its own user, and one no account is known of, as OpenShift chooses them.
@pytest.mark.parametrize(
    ("user", "workers"), [(None, 1), ("1000740000:0", 2)], ids=["its own user", "any user"]
)
def test_it_serves_hits_and_drains(
    container: StartContainer,
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    schema: str,
    user: str | None,
    workers: int,
) -> None:
    served = container(mariadb, memcached, user, proxy__workers=workers)
    client = Client(served, mariadb, schema)
    assert client.value() == 1
    wait_until(client.has_a_hit, SOON_S, "a hit")
    client.sets(2)
    assert client.value() == 2
    healthy = served.check_health()
    assert (healthy.returncode, healthy.stdout) == (0, "ready\n")

    with closing(client.connect()) as session:
        session.autocommit(False)
        with session.cursor() as cursor:
            cursor.execute("UPDATE t SET v = 3")
        served.signal(signal.SIGTERM)
        wait_until(lambda: not is_ready(served), SOON_S, "the end of readiness")
        assert served.check_health().returncode == 1
        with pytest.raises(pymysql.MySQLError):
            client.connect()
        session.commit()
    wait_until(lambda: served.ended() == 0, SOON_S, "exit code 0")
    assert mariadb.sql("SELECT v FROM t", schema) == ((3,),)


def test_it_may_do_nothing_but_serve(
    container: StartContainer, mariadb: PrivateMariaDB, memcached: PrivateMemcached
) -> None:
    """That is, the tests of this file run it as the documents say it can be run."""
    served = container(mariadb, memcached)
    status = Path(f"/proc/{served.pid}/status").read_text()
    for line in ("CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1"):
        assert line in status
    assert re.search(r"^NSpid:\t\d+\t1$", status, re.MULTILINE), "process 1 gets the signals"
    assert re.search(r"^Uid:(\t10001){4}$", status, re.MULTILINE)
    write = served.run("python", "-c", "open('/opt/sqlcache/new', 'w')")
    assert "Read-only file system" in write.stderr


def test_it_waits_for_mysql_and_finds_both_servers_again(
    container: StartContainer, own_mariadb: PrivateMariaDB, memcached: PrivateMemcached
) -> None:
    own_mariadb.sql("CREATE DATABASE shop")
    own_mariadb.kill()
    served = container(own_mariadb, memcached)
    assert "upstream" in served.readiness()["problems"]
    unhealthy = served.check_health()
    assert unhealthy.returncode == 1
    assert unhealthy.stdout.startswith("not ready: upstream: ")
    with pytest.raises(pymysql.MySQLError):
        served.connect(user=own_mariadb.user, password=own_mariadb.password)

    own_mariadb.restart()
    wait_until(lambda: is_ready(served), SOON_S, "readiness")
    client = Client(served, own_mariadb, "shop")
    wait_until(client.has_a_hit, SOON_S, "a hit")

    process = served.pid
    memcached.kill()
    assert client.value() == 1, "without memcached MySQL answers"
    memcached.restart()
    wait_until(client.has_a_hit, SOON_S, "a hit, from a memcached that came back")
    own_mariadb.kill()
    wait_until(lambda: not is_ready(served), SOON_S, "the end of readiness")
    own_mariadb.restart()
    wait_until(lambda: is_ready(served), SOON_S, "readiness, by a MySQL that came back")
    client.sets(2)
    assert client.value() == 2
    assert served.pid == process


def test_it_takes_a_password_that_was_changed(
    container: StartContainer, own_mariadb: PrivateMariaDB, memcached: PrivateMemcached
) -> None:
    served = container(own_mariadb, memcached)
    assert is_ready(served)
    account = f"'{own_mariadb.service_user}'@'%'"
    own_mariadb.sql(f"SET PASSWORD FOR {account} = PASSWORD('new')")
    served.secret("mysql", "new")
    own_mariadb.restart()
    wait_until(lambda: is_ready(served), SOON_S, "readiness, by the new password")


@pytest.fixture
def compressing(tmp_path: Path) -> Iterator[PrivateMySQL]:
    """A MySQL that compresses what it logs."""
    try:
        server = PrivateMySQL(tmp_path / "mysql", ("--binlog-transaction-compression=ON",))
    except MySQLMissing as missing:
        pytest.skip(str(missing))
    with server:
        yield server


def test_a_write_in_a_compressed_log_ends_the_answers_of_its_table_alone(
    container: StartContainer, compressing: PrivateMySQL, memcached: PrivateMemcached
) -> None:
    compressing.sql("CREATE DATABASE shop; CREATE DATABASE farm")
    served = container(compressing, memcached, binlog__follow="on")
    shop, farm = (Client(served, compressing, schema) for schema in ("shop", "farm"))
    for client in (shop, farm):
        wait_until(lambda: is_ready(served) and client.has_a_hit(), SOON_S, "a hit")  # noqa: B023
    wait_until(farm.has_a_hit, SOON_S, "a hit, when the log has told of the tables")
    forgotten = served.metrics()[EVERYTHING_FORGOTTEN]
    compressing.sql("UPDATE t SET v = 7", "shop")
    wait_until(lambda: shop.value() == 7, SOON_S, "the write")
    assert farm.has_a_hit()
    assert served.metrics()[EVERYTHING_FORGOTTEN] == forgotten


def test_its_page_for_a_terminal_is_shown(
    container: StartContainer, mariadb: PrivateMariaDB, memcached: PrivateMemcached
) -> None:
    served = container(mariadb, memcached)
    ours, its = pty.openpty()
    with served.run_at(its, "sqlcache", "top") as process:
        os.close(its)
        assert left_by_q(ours, process) == 0
    os.close(ours)


def test_it_is_small_at_idle(
    container: StartContainer,
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    record_property: Callable[[str, object], None],
) -> None:
    served = container(mariadb, memcached)
    status = Path(f"/proc/{served.pid}/status").read_text()
    resident = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
    assert resident is not None
    size = int(resident[1]) * 1024
    record_property("idle_bytes", size)
    print(f"at idle it takes {size / 1024 / 1024:.1f} MiB")
    assert size < IDLE_BYTES


def test_it_says_how_to_run_it(image: Image) -> None:
    config = image.config
    assert (config["Entrypoint"], config["Cmd"]) == (["sqlcache"], ["serve"])
    assert config["Healthcheck"]["Test"] == ["CMD", "sqlcache", "healthcheck"]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", config["User"]), "not a name"
    assert config["StopSignal"] == "SIGTERM"
    assert list(config["ExposedPorts"]) == ["3307/tcp"]
    assert config["WorkingDir"] == "/etc/sqlcache"
    label = "org.opencontainers.image."
    assert config["Labels"][label + "version"] == __version__
    for name in ("title", "description", "revision", "source", "licenses"):
        assert config["Labels"][label + name]


def test_every_setting_it_is_given_is_one(image: Image) -> None:
    given = [n.removeprefix("SQLCACHE_").lower() for n in image.environment if "SQLCACHE" in n]
    assert sorted(given) == ["admin", "listen"]
    sections = {path.split(".")[0] for path in map(SHORT_NAMES.__getitem__, given)}
    assert sections <= set(Settings.model_fields)


def test_it_holds_no_program_but_python_and_sqlcache(image: Image) -> None:
    programs = {
        file.name
        for file in image.root.rglob("*")
        if file.is_file() and not file.is_symlink() and os.access(file, os.X_OK)
        if ".so" not in file.suffixes and file.suffix != ".py"
    }
    assert {re.sub(r"3\.\d+$", "3", name) for name in programs} == {"python3", "sqlcache"}


def test_it_holds_the_compiled_kernel(image: Image) -> None:
    assert list(image.site_packages.glob("sqlcache/_kernel.*.so"))


def test_it_holds_the_locked_dependencies_and_nothing_else(image: Image) -> None:
    locked = dict(
        line.split("==")
        for line in (CHECKOUT / "requirements.lock").read_text().splitlines()
        if "==" in line
    )
    versions = {canonicalize_name(name): version for name, version in locked.items()}
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    found = {canonicalize_name(d.name): d for d in distributions(path=[str(image.site_packages)])}
    wanted = {canonicalize_name("sqlcache")}
    extras = project["optional-dependencies"]
    left = [
        (Requirement(line), "")
        for line in [*project["dependencies"], *extras["top"], *extras["zstd"]]
    ]
    version = image.site_packages.parent.name.removeprefix("python")
    seen: set[tuple[str, str]] = set()
    while left:
        requirement, extra = left.pop()
        name, marker = canonicalize_name(requirement.name), requirement.marker
        if marker is None or marker.evaluate({"python_version": version, "extra": extra}):
            wanted.add(name)
            for asked in {"", *requirement.extras} - {e for n, e in seen if n == name}:
                seen.add((name, asked))
                left += [(Requirement(line), asked) for line in found[name].requires or []]
    assert set(found) == wanted
    versions[canonicalize_name("sqlcache")] = __version__
    assert {n: found[n].version for n in wanted} == {n: versions.get(n) for n in wanted}
    folders = {f.name for f in image.site_packages.iterdir() if f.is_dir()}
    assert not folders & {"docs", "examples", "pip", "setuptools", "tests"}


def test_its_modules_are_compiled(image: Image) -> None:
    """A root that is read-only would have all of them compiled anew at every start."""
    modules = [f for f in image.root.rglob("*.py") if f.parent.name != "python3"]
    assert len(modules) > 1000, "else this shows nothing"
    missing = [
        module
        for module in modules
        if not module.is_symlink()
        and not list((module.parent / "__pycache__").glob(f"{module.stem}.cpython-3*.pyc"))
    ]
    assert missing == []


def test_it_knows_nothing_of_the_machine_that_built_it(image: Image) -> None:
    """No address, no setting of pip's or apt's, and no certificate but Debian's own."""
    said = str(image.description)
    addresses = set(re.findall(r"\w+://[^'\"#\s]*", said))
    assert addresses == {"https://github.com/sqlcache/sqlcache"}
    for place in ("etc/apt", "etc/pip.conf", "run/pip", "var/lib/apt", "var/cache", "root"):
        assert not (image.root / place).exists()
    begin = "-----BEGIN CERTIFICATE-----"
    bundle = image.root / "etc/ssl/certs/ca-certificates.crt"
    trusted = bundle.read_text().count(begin) if bundle.exists() else 0
    debian = image.root.glob("usr/share/ca-certificates/**/*.crt")
    assert trusted == sum(file.read_text().count(begin) for file in debian)


def test_the_dockerfile_has_the_version_by_itself() -> None:
    """For those who build it with no more than `docker build`."""
    text = (CHECKOUT / "docker" / "Dockerfile").read_text()
    assert f"ARG VERSION={__version__}\n" in text


def test_the_scripts_are_ones_for_any_shell() -> None:
    scripts = ("docker/build-image", "docker/debian-root", "tests/docker/suite-in-root")
    for script in scripts:
        assert os.access(CHECKOUT / script, os.X_OK)
        subprocess.run(["sh", "-n", CHECKOUT / script], check=True)
