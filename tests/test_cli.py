import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sqlcache import __version__
from sqlcache.cli import main
from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached
from sqlcache.process import cgroup
from sqlcache.settings.sources import SHORT_NAMES

ROOT = Path(__file__).parents[1]
UPSTREAM = ["--upstream", "mysql://cat:s3cret@127.0.0.1:3306"]
REQUIRED = [*UPSTREAM, "--memcached", "127.0.0.1:11211"]


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings of this machine: neither from its environment nor a file where the test runs."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("SQLCACHE_"):
            monkeypatch.delenv(name)


def test_python_m_sqlcache_is_the_command() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "sqlcache", "--version"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert said.stdout.startswith(f"sqlcache {__version__} (")


def test_check_config_prints_every_setting_and_its_source(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = '[[rules]]\nschema = "shop"\noff = true\n'
    Path("sqlcache.toml").write_text(f"[cache]\nttl_s = 5\nmax_entry_bytes = 9\n{rule}")
    monkeypatch.setenv("SQLCACHE_CACHE__TTL_S", "6")
    assert main(["check-config", *REQUIRED]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "cache.ttl_s = 6  (SQLCACHE_CACHE__TTL_S)" in lines
    assert "cache.max_entry_bytes = 9  (sqlcache.toml)" in lines
    assert "memcached.nodes = 127.0.0.1:11211  (--memcached)" in lines
    assert "admin.listen = none  (default)" in lines
    assert "rules[0] = {'schema': 'shop', 'off': True}  (sqlcache.toml)" in lines
    assert lines[-1] == "all settings are right"


def test_check_config_warns_of_variables_that_are_no_settings_and_ends_with_0(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SQLCACHE_CACHE_TTL_S", "6")
    assert main(["check-config", *REQUIRED]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "cache.ttl_s = 3600  (default)" in lines
    assert (
        "warning: SQLCACHE_CACHE_TTL_S: there is no such setting, it changes nothing;"
        " did you mean SQLCACHE_CACHE__TTL_S?"
    ) in lines


def test_numbers_that_follow_the_machine_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-config", *REQUIRED, "--workers", "auto"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"proxy.workers = auto, here {cgroup.cpus()}  (--workers)" in lines
    assert any(line.startswith("cache.near_bytes = auto, here ") for line in lines)


def test_the_api_can_be_imported_by_a_user_without_a_name() -> None:
    """As in a container that runs under any number; Python 3.13 says so with an OSError."""
    nameless = (
        "import getpass\n"
        "def no_name():\n    raise OSError('No username set in the environment')\n"
        "real, getpass.getuser = getpass.getuser, lambda: __import__('os').environ.get('LOGNAME')"
        " or no_name()\n"
        "import sqlcache.api, sqlcache.process.serving, os\n"
        "assert 'LOGNAME' not in os.environ\n"
    )
    names = ("LOGNAME", "USER", "LNAME", "USERNAME")
    environment = {k: v for k, v in os.environ.items() if k not in names}
    subprocess.run([sys.executable, "-c", nameless], check=True, env=environment, cwd=ROOT)


def test_check_config_never_prints_the_password(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-config", *REQUIRED]) == 0
    assert main(["check-config", "--upstream", "mysql://cat:s3cret@:x"]) == 1
    assert main(["check-config", "--listen", "mysql://cat:s3cret@127.0.0.1:3306"]) == 1
    printed = capsys.readouterr()
    assert "s3cret" not in printed.out + printed.err


def test_every_wrong_setting_is_a_line_on_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["check-config", *REQUIRED, "--workers", "many", "--listen", "3307"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        "sqlcache: proxy.listen = 3307 (--listen): expected HOST:PORT, as in 127.0.0.1:3307",
        "sqlcache: proxy.workers = many (--workers): expected a whole number, or auto",
    ]


def test_serve_with_a_wrong_setting_ends_with_2_and_no_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["serve", *UPSTREAM]) == 2
    assert capsys.readouterr().err.startswith("sqlcache: memcached.nodes: is not set; give it as")


def test_the_fixed_form_of_serve_is_understood(capsys: pytest.CaptureFixture[str]) -> None:
    Path("other.toml").write_text("[proxy]\nlogin_timeout_s = 3\n")
    flags = ["--listen", "127.0.0.1:3307", *UPSTREAM, "--memcached", "127.0.0.1:11211"]
    flags += ["--memcached", "127.0.0.1:11212", "--admin", "127.0.0.1:9307"]
    flags += ["--config", "other.toml", "--workers", "2"]
    assert main(["check-config", *flags]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "memcached.nodes = 127.0.0.1:11211, 127.0.0.1:11212  (--memcached)" in lines
    assert "proxy.login_timeout_s = 3.0  (other.toml)" in lines
    assert "proxy.workers = 2  (--workers)" in lines
    assert "admin.listen = 127.0.0.1:9307  (--admin)" in lines


@pytest.mark.parametrize(
    "arguments", [[], ["serv"], ["serve", "--lissen", "x"], ["demo", "--rows", "0"]]
)
def test_a_wrong_command_line_is_explained_and_ends_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: sqlcache" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["serve", "check-config"])
def test_a_wrong_flag_shows_the_commands_own_flags_and_how_else_settings_are_given(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--ttl", "5"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"usage: sqlcache {command} ")
    assert said.endswith(
        f"sqlcache {command}: error: unrecognized arguments: --ttl 5; settings without a flag are"
        " given as SQLCACHE_CACHE__TTL_S=5 or in sqlcache.toml\n"
    )


@pytest.mark.parametrize("arguments", [["demo", "--ttl=5"], ["serve", "5"]])
def test_what_cannot_be_meant_for_a_setting_has_no_such_hint(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    said = capsys.readouterr().err
    assert said.startswith(f"usage: sqlcache {arguments[0]} ")
    assert said.endswith(f"unrecognized arguments: {arguments[1]}\n")


def test_a_misspelled_flag_does_not_show_the_password(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--upsteam", "mysql://cat:s3cret@127.0.0.1:3306"])
    assert "s3cret" not in capsys.readouterr().err


OWN_FLAGS = {
    "invalidate": {"--upstream", "--memcached", "--admin", "--log-level", "--config"},
    "healthcheck": {"--admin", "--config"},
    "flush": {"--admin", "--config"},
    "top": {"--admin", "--config"},
    "explain": {"--upstream", "--admin", "--config"},
    "stats": {"--memcached", "--admin", "--config"},
}
"""Which of the flags of `serve`."""


@pytest.mark.parametrize("command", OWN_FLAGS)
def test_a_commands_help_lists_its_own_flags_and_no_others(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def listed(of: str) -> set[str]:
        with pytest.raises(SystemExit):
            main([of, "--help"])
        return set(re.findall(r"^  (--[a-z-]+)", capsys.readouterr().out, re.MULTILINE))

    serves = listed("serve")
    assert len(serves) == len(SHORT_NAMES) + 1, "else this shows nothing"
    assert listed(command) & serves == OWN_FLAGS[command]


@pytest.mark.parametrize(
    "command", ["invalidate", "stats", "save", "load", "serve", "check-config"]
)
def test_help_offers_a_process_s_own_memory_where_it_is_not_refused(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    offered = "memory: this process's own" in " ".join(capsys.readouterr().out.split())
    assert offered == (command in ("serve", "check-config"))


@pytest.mark.parametrize(
    "command", [["flush", "--all"], ["stats", "--statements"], ["healthcheck"]]
)
def test_who_asks_a_running_sqlcache_needs_its_address_alone(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--admin", "127.0.0.1:1"]) in (1, 2)
    assert "nobody answers" in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    "command",
    [["flush", "--all"], ["stats", "--statements"], ["stats", "--suggest"], ["healthcheck"]],
)
def test_who_asks_a_running_sqlcache_needs_not_read_what_is_for_that_one_alone(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    unreadable = tmp_path / "a-folder"
    unreadable.mkdir()
    config = tmp_path / "its.toml"
    config.write_text(
        f"""
        [upstream]
        url = "mysql://cat@127.0.0.1:1"
        password_file = "{unreadable}"
        [memcached]
        nodes = ["127.0.0.1:1"]
        secret_file = "{unreadable}"
        [proxy]
        listen = "127.0.0.1:1"
        tls_certificate = "{unreadable}"
        tls_key = "{unreadable}"
        [admin]
        listen = "127.0.0.1:3307"
        """
    )
    monkeypatch.setenv("SQLCACHE_UPSTREAM__TLS_CA", str(unreadable))
    monkeypatch.setenv("SQLCACHE_ADMIN", "127.0.0.1:2")
    assert main([*command, "--config", str(config)]) in (1, 2)
    said = "".join(capsys.readouterr())
    assert "nobody answers" in said
    assert "127.0.0.1:2" in said


def test_who_asks_memcached_needs_its_nodes_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "its.toml"
    config.write_text(
        f"""
        [upstream]
        url = "mysql://cat@127.0.0.1:1"
        password_file = "{tmp_path}"
        [memcached]
        nodes = ["127.0.0.1:1"]
        secret_file = "{tmp_path}"
        """
    )
    assert main(["stats", "--config", str(config)]) == 1
    assert "127.0.0.1:1: cannot be reached" in capsys.readouterr().out


def test_what_is_wrong_with_the_door_is_said_to_who_asks_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "its.toml"
    config.write_text(f'[admin]\nlisten = "127.0.0.1:1"\ntoken_file = "{tmp_path}"\n')
    assert main(["flush", "--all", "--config", str(config)]) == 2
    assert "admin.token_file = " in capsys.readouterr().err
    assert main(["healthcheck", "--config", str(config)]) == 1
    assert "nobody answers" in capsys.readouterr().out, "it sends none"


def test_what_check_config_cannot_reach_is_a_line_each_and_ends_with_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    nowhere = ["--upstream", "mysql://cat@127.0.0.1:1", "--memcached", "127.0.0.1:1"]
    assert main(["check-config", *nowhere]) == 0
    capsys.readouterr()
    assert main(["check-config", *nowhere, "--connect"]) == 1
    said = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[1] for line in said] == ["memcached.nodes", "upstream.url"]
    assert all("Connect" in line for line in said), "each says why"


def test_check_config_names_the_socket_that_it_cannot_reach(
    capsys: pytest.CaptureFixture[str],
) -> None:
    nowhere = ["--upstream", "mysql://cat@localhost?unix_socket=/nowhere", "--memcached", "memory"]
    assert main(["check-config", *nowhere, "--connect"]) == 1
    said = capsys.readouterr().err
    assert "no connection to /nowhere as 'cat'" in said
    assert "No such file or directory" in said


def test_check_config_says_which_memcached_takes_no_item_as_long_as_the_settings_have(
    mariadb: PrivateMariaDB, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with PrivateMemcached(tmp_path / "memcached", options=("-I", "512k")) as memcached:
        there = ["--upstream", mariadb.service_url, "--memcached", memcached.address]
        assert main(["check-config", *there, "--connect"]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(
            f"sqlcache: memcached.max_item_bytes = 1000000: {memcached.address} takes no item over"
            " 524288 bytes"
        )


def test_check_config_says_which_memcached_compares_nothing(
    mariadb: PrivateMariaDB, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with PrivateMemcached(tmp_path / "memcached", options=("-C",)) as memcached:
        there = ["--upstream", mariadb.service_url, "--memcached", memcached.address]
        assert main(["check-config", *there, "--connect"]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"sqlcache: memcached.nodes: {memcached.address} runs with -C")


@pytest.mark.parametrize(
    ("known", "refused"),
    [
        (["10.0.0.2", "10.0.0.1"], "cache is 10.0.0.1 and 10.0.0.2"),
        (["10.0.0.1", "fd00::2", "fd00::1"], "cache is fd00::1 and fd00::2"),
        (["127.0.0.1", "::1", "127.0.0.1"], ""),
    ],
)
def test_check_config_refuses_a_name_that_may_lead_to_several_memcacheds(
    known: list[str],
    refused: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def addresses(_: str) -> list[str]:
        return known

    monkeypatch.setattr("sqlcache.commands.connect_check.addresses", addresses)
    nowhere = ["--upstream", "mysql://cat@127.0.0.1:1", "--memcached", "cache:1"]
    assert main(["check-config", *nowhere, "--connect"]) == 1
    said = capsys.readouterr().err
    assert ("expected one memcached" in said) == bool(refused)
    assert refused in said


def test_check_config_says_that_a_certificate_cannot_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "none.pem"
    file.write_text("this is none")
    flags = ["--tls-certificate", str(file), "--tls-key", str(file)]
    assert main(["check-config", *REQUIRED, *flags]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"sqlcache: proxy.tls_certificate = {file}")


@pytest.mark.parametrize("flags", [["--json"], ["--sort", "calls"], ["--suggest", "--json"]])
def test_rows_are_sorted_and_made_json_of_a_list_alone(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stats", "--memcached", "memory", *flags]) == 2
    assert capsys.readouterr().err == (
        "sqlcache: --sort and --json: expected a list beside them, as in --statements\n"
    )


@pytest.mark.parametrize("unbuffered", ["1", ""])
@pytest.mark.parametrize(
    "command",
    [
        ["--help"],
        ["--version"],
        ["completions", "bash"],
        ["check-config", *REQUIRED],
        ["healthcheck", "--admin", "127.0.0.1:1"],
    ],
)
def test_an_output_that_takes_nothing_is_said_in_a_line_and_ends_with_1(
    command: list[str], unbuffered: str
) -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "sqlcache", *command],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    said = "sqlcache: standard output: No space left on device\n"
    assert (ended.returncode, ended.stderr) == (1, said)


@pytest.mark.parametrize("unbuffered", ["1", ""])
@pytest.mark.parametrize("command", [["nonsense"], ["flush", "--all", "--admin", "127.0.0.1:1"]])
def test_an_output_that_is_not_written_to_may_be_full(command: list[str], unbuffered: str) -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "sqlcache", *command],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert ended.returncode == 2
    assert "standard output" not in ended.stderr
    assert "invalid choice: 'nonsense'" in ended.stderr or "nobody answers" in ended.stderr


def _ends(body: str, stdout: str) -> tuple[int, list[str]]:
    """The exit code of a `completions` of this body, and what it says on standard error."""
    script = (
        "import errno, os, sys\n"
        "from sqlcache.cli import main\n"
        "from sqlcache.commands import completions\n"
        "from sqlcache.errors import ConfigError\n"
        f"def run(*_):\n    {body}\n"
        "completions.run = run\n"
        "sys.exit(main(['completions', 'bash']))\n"
    )
    command = ["sh", "-c", f'exec "$0" -c "$1" {stdout}', sys.executable, script]
    environment = {**os.environ, "PYTHONUNBUFFERED": "", "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, env=environment)
    return ended.returncode, ended.stderr.splitlines()


NO_SPACE = "sqlcache: standard output: No space left on device"


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ("print(1); return 0", 1, [NO_SPACE]),
        ("print(1); return 2", 2, [NO_SPACE]),
        ("print(1); raise ConfigError('it is wrong')", 2, ["sqlcache: it is wrong", NO_SPACE]),
        ("print(1); raise KeyboardInterrupt", 130, [NO_SPACE]),
        ("raise ConfigError('it is wrong')", 2, ["sqlcache: it is wrong"]),
        ("raise KeyboardInterrupt", 130, []),
    ],
)
def test_an_output_that_takes_nothing_hides_no_other_end(
    body: str, code: int, said: list[str]
) -> None:
    assert _ends(body, ">/dev/full") == (code, said)


@pytest.mark.parametrize("stdout", [">/dev/null", ">/dev/full", ">&-"])
def test_what_a_file_does_not_take_is_not_said_of_the_output(stdout: str) -> None:
    code, said = _ends("raise OSError(errno.ENOSPC, 'No space left on device', '/a')", stdout)
    assert (code, said[-1]) == (1, "OSError: [Errno 28] No space left on device: '/a'")


def test_there_may_be_no_output() -> None:
    assert _ends("print(1); return 0", ">&-") == (0, [])


def test_a_statement_in_no_encoding_that_can_be_asked_about_is_refused() -> None:
    flags = [*UPSTREAM, "--admin", "127.0.0.1:1"]
    asked = [sys.executable, "-m", "sqlcache", "explain", os.fsdecode(b"SELECT '\xff'"), *flags]
    ended = subprocess.run(asked, stderr=subprocess.PIPE)
    said = b"sqlcache: the statement is not UTF-8, which JSON alone can hold\n"
    assert (ended.returncode, ended.stderr) == (2, said)


@pytest.mark.parametrize("command", [["check-config", "--connect"], ["explain", "SELECT 1"]])
def test_who_is_tired_of_a_silent_server_leaves_by_ctrl_c(command: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"mysql://cat@127.0.0.1:{silent.getsockname()[1]}"
        asking = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "sqlcache",
                *command,
                "--upstream",
                url,
                "--memcached",
                "memory",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        silent.settimeout(60)
        connection, _ = silent.accept()
        asking.send_signal(signal.SIGINT)
        with connection:
            assert (asking.communicate(timeout=60)[1], asking.returncode) == (b"", 130)
