"""`sqlcache init`: the files it writes work, as they are, with real servers."""

from __future__ import annotations

import getpass
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sqlcache.cli import main
from sqlcache.demo.servers import (
    PrivateMariaDB,
    PrivateMemcached,
    PrivateSqlcache,
    free_port,
    wait_until,
)
from sqlcache.settings.sources import load
from tests.docker.test_systemd import analyze
from tests.servers import PATIENT

NAMES = ("sqlcache.toml", "sqlcache.sql", "sqlcache.service")


class Initialised(PrivateSqlcache):
    """`sqlcache serve` with a file of `init`, and nothing else but patience on a busy machine."""

    file: Path

    def command(self) -> list[str]:
        return [sys.executable, "-m", "sqlcache", "serve", "--config", str(self.file)]

    def _take_ports(self) -> None:
        """They are in the file."""

    def _environment(self) -> dict[str, str]:
        patience = {
            name: str(PATIENT[name]) for name in ("memcached__timeout_s", "memcached__outage_s")
        }
        return {
            **super()._environment(),
            **{f"SQLCACHE_{k.upper()}": v for k, v in patience.items()},
        }


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def account(text: str) -> tuple[str, str]:
    """The name and the password that a file of statements has."""
    found = re.search(r"CREATE USER '(\w+)'@'%' IDENTIFIED BY '(.*)';", text)
    assert found is not None
    return found[1], found[2]


@pytest.mark.parametrize("given", ["made", "in the URL", "in a file"])
def test_what_it_writes_serves_at_once(
    given: str,
    mariadb: PrivateMariaDB,
    memcached: PrivateMemcached,
    schema: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "my own"
    server = Initialised(tmp_path / "server", "", ())
    server.file = folder / "sqlcache.toml"
    server.port, server.admin_port = free_port(), free_port()
    awkward = "it's 100% \"@/:?#\\ x"
    upstream, flags = mariadb.address, ["--user", schema]
    if given == "in the URL":
        upstream = f"mysql://{schema}:it%27s%20100%25%20%22%40%2F%3A%3F%23%5C%20x@{upstream}"
        flags = []
    elif given == "in a file":
        (tmp_path / "password").write_text(awkward + "\n")
        flags += ["--password-file", str(tmp_path / "password")]
    flags += ["--upstream", upstream, "--memcached", memcached.address, "--dir", str(folder)]
    flags += ["--listen", server.address, "--admin", f"127.0.0.1:{server.admin_port}"]
    assert main(["init", *flags]) == 0
    *_, first, second, third = capsys.readouterr().out.splitlines()
    assert [line[:2] for line in (first, second, third)] == ["1.", "2.", "3."]

    config = ["--config", str(server.file)]
    assert main(["check-config", *config]) == 0
    assert main(["check-config", *config, "--connect"]) == 1, "there is no such account yet"
    mariadb.sql((folder / "sqlcache.sql").read_text())
    assert main(["check-config", *config, "--connect"]) == 0, capsys.readouterr().err
    password = load(server.file).settings.upstream.read_password()
    assert password == awkward or given == "made"
    assert len(password) > 20 or given != "made"

    mariadb.sql("CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (7)", schema)
    login = {"user": mariadb.user, "password": mariadb.password, "database": schema}
    with server, server.connect(**login) as client, client.cursor() as cursor:
        # Until then what was read is forgotten: the log may tell of it.
        wait_until(lambda: "following the binary log" in server.log_text(), 20, "its following")
        for _ in range(3):
            cursor.execute("SELECT id FROM t")
            assert cursor.fetchall() == ((7,),)
        assert server.metrics()["sqlcache_hits_total"] == 2
        assert main(["healthcheck", *config]) == 0
    mariadb.sql(f"DROP USER '{schema}'@'%'")


@pytest.mark.parametrize("by", ["TCP", "a socket"])
def test_its_first_step_makes_the_account_where_root_is_the_machines(
    by: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on a Debian that has just installed its MariaDB: TCP lets root in with no password."""
    sudo = tmp_path / "bin" / "sudo"
    sudo.parent.mkdir()
    sudo.write_text('#!/bin/sh\nexec "$@" --user=root\n')  # which is what root is called there
    sudo.chmod(0o755)
    with PrivateMariaDB(tmp_path / "mariadb") as server:
        upstream = "127.0.0.1:3306"
        if by == "a socket":
            upstream = f"mysql://sqlcache@127.0.0.1?unix_socket={server.socket}"
        root = f"root@localhost IDENTIFIED VIA unix_socket AS '{getpass.getuser()}'"
        server.sql(f"ALTER USER {root}; DROP USER sqlcache@'%'")
        assert main(["init", "--upstream", upstream, "--dir", str(tmp_path / "made")]) == 0
        step = capsys.readouterr().out.splitlines()[-3].removeprefix("1. ")
        if by == "TCP":  # where the client finds the machine's own
            places = f"[client]\nsocket = {server.socket}\nport = {server.port}\n"
            (tmp_path / ".my.cnf").write_text(places)
        done = subprocess.run(
            ["sh", "-c", step],
            env={"PATH": f"{sudo.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert server.sql("SELECT COUNT(*) FROM mysql.user WHERE user = 'sqlcache'") == ((1,),)


@pytest.mark.parametrize("upstream", ["db.internal:3306", "127.0.0.1:3310"])
def test_its_first_step_asks_for_a_password_where_the_server_is_no_package_of_this_machine(
    upstream: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "--upstream", upstream, "--dir", str(tmp_path)]) == 0
    port = "" if upstream.endswith(":3306") else " -P 3310"
    host = upstream.partition(":")[0]
    assert capsys.readouterr().out.splitlines()[-3] == (
        f"1. mysql -h {host}{port} -u root -p < {tmp_path}/sqlcache.sql"
        "  # the account; delete it then"
    )


def test_what_holds_the_password_is_its_owners_alone(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("s3cret\n")
    assert main(["init", "--dir", str(tmp_path / "made")]) == 0
    assert main(["init", "--dir", str(tmp_path / "file"), "--password-file", str(password)]) == 0
    made, kept = ([tmp_path / where / name for name in NAMES] for where in ("made", "file"))
    assert [mode(file) for file in made] == [0o600, 0o600, 0o644]
    assert [mode(file) for file in kept] == [0o644, 0o600, 0o644]
    name, secret = account(made[1].read_text())
    assert (name, len(secret) > 20) == ("sqlcache", True)
    assert [secret in file.read_text() for file in made] == [True, True, False]
    assert ["s3cret" in file.read_text() for file in kept] == [False, True, False]


def test_every_line_of_the_settings_is_explained_and_right(tmp_path: Path) -> None:
    assert main(["init", "--dir", str(tmp_path)]) == 0
    file = tmp_path / "sqlcache.toml"
    lines = file.read_text().splitlines()
    assignments = [n for n, line in enumerate(lines) if re.match(r"#?\w+ = ", line)]
    assert len(assignments) > 10, "else this shows nothing"
    of_rules = next(n for n, line in enumerate(lines) if line == "#[[rules]]")
    for number in assignments:
        assert number > of_rules or re.match(r"# \S", lines[number - 1]), lines[number]
    in_use = load(file).settings
    file.write_text(re.sub(r"^#(?=\w+ = |\[)", "", file.read_text(), flags=re.MULTILINE))
    everything = load(file).settings
    assert (in_use.rules, len(everything.rules)) == ((), 1)
    were = dict(in_use.items())
    differing = {path for path, now in everything.items() if were.get(path) != now}
    assert differing == {"admin.token", "rules[0]"}, "what stands there as a default is none"


def test_nothing_is_overwritten_unless_it_is_forced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    precious = tmp_path / "sqlcache.sql"
    precious.write_text("precious")
    precious.chmod(0o644)
    assert main(["init", "--dir", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"sqlcache: {precious}: is there; --force overwrites it\n"
    assert [file.name for file in tmp_path.iterdir()] == ["sqlcache.sql"]
    assert precious.read_text() == "precious"
    assert main(["init", "--dir", str(tmp_path), "--force"]) == 0
    assert {file.name for file in tmp_path.iterdir()} == set(NAMES)
    assert ("CREATE USER" in precious.read_text(), mode(precious)) == (True, 0o600)


def test_what_is_forced_leaves_links_and_what_is_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, kept = tmp_path / "folder", tmp_path / "kept.toml"
    folder.mkdir()
    kept.write_text("old")
    (folder / "sqlcache.toml").symlink_to(kept)
    os.mkfifo(folder / "sqlcache.service")
    forced = ["init", "--dir", str(folder), "--force"]
    assert main(forced) == 2
    said = f"sqlcache: {folder}/sqlcache.service: is no regular file, and stays what it is\n"
    assert capsys.readouterr().err == said
    assert (kept.read_text(), (folder / "sqlcache.service").is_fifo()) == ("old", True)
    assert not (folder / "sqlcache.sql").exists()
    (folder / "sqlcache.service").unlink()
    assert main(forced) == 0
    assert (folder / "sqlcache.toml").readlink() == kept
    assert ("upstream" in kept.read_text(), mode(kept)) == (True, 0o600)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--listen", "3307"], "proxy.listen = 3307 (--listen): expected HOST:PORT"),
        (["--memcached", "x"], "memcached.nodes = ['x'] (--memcached): expected HOST:PORT"),
        (["--upstream", "mysql://cat:s3cret@:x"], "upstream.url (--upstream): expected mysql://"),
        (["--upstream", "app:s3cret@db:3306"], "--upstream: expected HOST:PORT, or a URL, mysql:/"),
        (["--upstream", "mysql://a@b", "--user", "c"], "--user = c: expected the user in --up"),
        (["--password-file", "nowhere"], "nowhere: cannot be read: No such file"),
        (
            ["--upstream", "mysql://a:s3cret@b", "--password-file", "x"],
            "--password-file: expected it, or a password in --upstream, not both",
        ),
        (["--dir", "/proc/nowhere"], "--dir = /proc/nowhere: cannot be written: "),
        (["--dir", "/proc/version"], "--dir = /proc/version: is a file"),
        (["--dir", "/proc/version", "--force"], "--dir = /proc/version: is a file"),
    ],
)
def test_a_flag_that_is_wrong_is_named(
    flags: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "--dir", str(tmp_path / "new"), *flags]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "s3cret" not in error
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("flags", [[], ["--password-file", "password"]])
def test_systemd_takes_the_unit(
    flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("password").write_text("secret")
    folder = tmp_path / "100% mine"
    assert main(["init", "--dir", str(folder), *flags]) == 0
    unit = folder / "sqlcache.service"
    verified = analyze("verify", "--man=no", str(unit))
    assert (verified.stderr, verified.returncode) == ("", 0)
    text = unit.read_text()
    assert "/opt/" not in text
    assert "/etc/" not in text
    file = str(tmp_path / "password") if flags else f"{tmp_path}/100%% mine/sqlcache.toml"
    assert re.search(rf"^LoadCredential=[\w.-]+:{re.escape(file)}$", text, re.MULTILINE)
    named = "%d/sqlcache.toml" if not flags else f"{tmp_path}/100%% mine/sqlcache.toml"
    assert re.search(rf'^Environment="?SQLCACHE_CONFIG={re.escape(named)}"?$', text, re.MULTILINE)
