import errno
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from sqlcache import settings as module
from sqlcache.errors import ConfigError
from sqlcache.process import cgroup
from sqlcache.rules import policy_of
from sqlcache.settings import HostPort, MySQLUrl, RoutineSettings, RuleSettings, Settings
from sqlcache.settings.sources import from_arguments, load

FLAGS = {"upstream": "mysql://cat:s3cret@db.example:3300", "memcached": ["10.0.0.1:11211"]}


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def settings(
    toml: str = "", environment: Mapping[str, str] | None = None, **flags: object
) -> Settings:
    Path("sqlcache.toml").write_text(toml)
    return load(None, environment, {**FLAGS, **flags}).settings


def refused(
    toml: str = "", environment: Mapping[str, str] | None = None, **flags: object
) -> list[str]:
    """The sentences of the ConfigError these settings cause."""
    with pytest.raises(ConfigError) as error:
        settings(toml, environment, **flags)
    return str(error.value).splitlines()


class TestSources:
    def test_without_a_file_the_defaults_hold(self) -> None:
        loaded = load(flags=FLAGS).settings
        assert loaded.proxy.listen == HostPort("127.0.0.1", 3307)
        assert loaded.cache.ttl_s == 3600
        assert loaded.admin.listen is None

    def test_environment_wins_over_file_and_flags_over_both(self) -> None:
        toml = '[proxy]\nworkers = 2\nlisten = "a:1"\nlogin_timeout_s = 1\n'
        environment = {"SQLCACHE_PROXY__WORKERS": "3", "SQLCACHE_PROXY__LISTEN": "b:2"}
        proxy = settings(toml, environment, listen="c:3").proxy
        assert (proxy.login_timeout_s, proxy.workers, str(proxy.listen)) == (1, 3, "c:3")

    def test_a_flag_that_was_not_given_changes_nothing(self) -> None:
        assert settings("[proxy]\nworkers = 2\n", workers=None).proxy.workers == 2

    def test_each_given_setting_knows_its_source(self) -> None:
        Path("mine.toml").write_text("[cache]\nttl_s = 5\n")
        loaded = load(Path("mine.toml"), {"SQLCACHE_LISTEN": "a:1"}, FLAGS)
        assert loaded.sources == {
            "cache.ttl_s": "mine.toml",
            "proxy.listen": "SQLCACHE_LISTEN",
            "upstream.url": "--upstream",
            "memcached.nodes": "--memcached",
        }

    def test_a_file_that_was_named_must_exist(self) -> None:
        with pytest.raises(ConfigError, match=r"nowhere\.toml: there is no such file"):
            load(Path("nowhere.toml"), {}, FLAGS)

    def test_a_named_file_replaces_the_one_of_this_folder(self) -> None:
        Path("sqlcache.toml").write_text("[cache]\nttl_s = 5\n")
        Path("other.toml").write_text("")
        assert load(Path("other.toml"), {}, FLAGS).settings.cache.ttl_s == 3600

    @pytest.mark.parametrize("config", [None, Path("sqlcache.toml")])
    def test_a_file_that_had_settings_is_not_to_be_without_any_later(
        self, config: Path | None
    ) -> None:
        file = Path("sqlcache.toml")
        file.write_text("[[rules]]\ntable = 'shop.secrets'\noff = true\n")
        before = load(config, {}, FLAGS)
        file.write_text("rules = []\n")  # which says so
        assert load(config, {}, FLAGS, had_file=before.has_file).settings.rules == ()
        for nothing in ("", "# [[rules]]\n", "[proxy]\n"):
            file.write_text(nothing)
            with pytest.raises(ConfigError, match=r"sqlcache\.toml: has no settings any more"):
                load(config, {}, FLAGS, had_file=before.has_file)
            without = load(config, {}, FLAGS)
            assert not load(config, {}, FLAGS, had_file=without.has_file).has_file
        file.unlink()
        with pytest.raises(ConfigError, match=r"sqlcache\.toml: there is no such file"):
            load(config, {}, FLAGS, had_file=before.has_file)

    @pytest.mark.parametrize("toml", ["[proxy", "\x00", "proxy = 3", "x = " + 9999 * "["])
    def test_a_file_that_is_not_a_settings_file_is_named(self, toml: str) -> None:
        assert "sqlcache.toml" in refused(toml)[0]

    def test_a_folder_in_place_of_the_file_is_an_error_not_a_default(self) -> None:
        Path("sqlcache.toml").mkdir()
        with pytest.raises(ConfigError, match="cannot be read"):
            load(None, {}, FLAGS)

    def test_a_section_of_the_environment_that_there_is_not_is_named(self) -> None:
        assert refused(environment={"SQLCACHE_PROXXY__LISTEN": "a:1"}) == [
            "proxxy (SQLCACHE_PROXXY__LISTEN): there is no such section; did you mean [proxy]?"
        ]

    def test_a_file_may_begin_with_the_mark_that_windows_writes(self) -> None:
        assert settings("\ufeff[cache]\nttl_s = 5\n").cache.ttl_s == 5

    def test_the_environment_lists_nodes_with_commas(self) -> None:
        environment = {"SQLCACHE_MEMCACHED": "a:1, b:2"}
        assert settings(environment=environment, memcached=None).memcached.nodes == ("a:1", "b:2")

    def test_a_setting_given_by_two_variables_is_refused(self) -> None:
        environment = {"SQLCACHE_LISTEN": "a:1", "SQLCACHE_PROXY__LISTEN": "a:1"}
        assert refused(environment=environment) == [
            "proxy.listen: given twice, by SQLCACHE_LISTEN and SQLCACHE_PROXY__LISTEN"
        ]

    def test_variables_kubernetes_makes_for_a_service_called_sqlcache_are_not_settings(
        self,
    ) -> None:
        environment = {
            "SQLCACHE_PORT": "tcp://10.0.0.1:3307",
            "SQLCACHE_PORT_3307_TCP": "tcp://10.0.0.1:3307",
            "SQLCACHE_PORT_3307_TCP_PROTO": "tcp",
            "SQLCACHE_SERVICE_HOST": "10.0.0.1",
            "SQLCACHE_SERVICE_PORT": "3307",
            "SQLCACHE_SERVICE_PORT_MYSQL": "3307",
            "SQLCACHE_ADMIN_SERVICE_HOST": "10.0.0.2",
        }
        assert settings(environment=environment) == settings()
        assert load(None, environment, FLAGS).warnings == ()

    @pytest.mark.parametrize(
        ("variable", "meant"),
        [
            ("SQLCACHE_CACHE_TTL_S", "SQLCACHE_CACHE__TTL_S"),
            ("SQLCACHE_TTL_S", "SQLCACHE_CACHE__TTL_S"),
            ("SQLCACHE_UPSTREAM_PASSWORD_FILE", "SQLCACHE_UPSTREAM__PASSWORD_FILE"),
            ("SQLCACHE_LISTENS", "SQLCACHE_LISTEN"),
            ("SQLCACHE_RULE", "SQLCACHE_RULES"),
            ("SQLCACHE__LISTEN", "SQLCACHE_LISTEN"),
            ("SQLCACHE__CACHE_TTL_S", "SQLCACHE_CACHE__TTL_S"),
        ],
    )
    def test_a_variable_that_is_no_setting_is_named_and_what_it_may_mean(
        self, variable: str, meant: str
    ) -> None:
        loaded = load(None, {variable: "s3cret"}, FLAGS)
        assert loaded.warnings == (
            f"{variable}: there is no such setting, it changes nothing; did you mean {meant}?",
        )
        assert loaded.settings == settings()

    def test_a_variable_that_is_like_none_of_ours_is_named_alone(self) -> None:
        (sentence,) = load(None, {"SQLCACHE_QQQQQQQQ": "1"}, FLAGS).warnings
        assert sentence == "SQLCACHE_QQQQQQQQ: there is no such setting, it changes nothing"

    def test_variables_that_are_ours_or_of_others_are_no_warning(self) -> None:
        Path("mine.toml").write_text("")
        ours = {"SQLCACHE_CONFIG": "mine.toml", "SQLCACHE_IMPL": "pure", "SQLCACHE_RULES": "[]"}
        others = {"PATH": "/bin", "SQL_CACHE": "1", "SQLCACHE_LISTEN": "a:1"}
        assert load(None, {**ours, **others}, FLAGS).warnings == ()


class TestPasswordFile:
    URL = "mysql://cat@db.example:3300"

    def test_it_has_the_password_less_the_lines_end(self, tmp_path: Path) -> None:
        secret = tmp_path / "secret"
        for text, password in (("pw\n", "pw"), (" p w \r\n", " p w "), ("pw\n\n", "pw\n")):
            secret.write_bytes(text.encode())
            environment = {"SQLCACHE_UPSTREAM__PASSWORD_FILE": str(secret)}
            loaded = settings(environment=environment, upstream=self.URL)
            assert loaded.upstream.read_password() == password

    def test_two_passwords_are_refused_and_neither_is_shown(self, tmp_path: Path) -> None:
        (tmp_path / "secret").write_text("other")
        environment = {"SQLCACHE_UPSTREAM__PASSWORD_FILE": str(tmp_path / "secret")}
        (sentence,) = refused(environment=environment)
        assert sentence == "upstream: expected a password in url, or password_file, not both"

    def test_a_file_that_is_not_there_or_is_no_text_is_named(self, tmp_path: Path) -> None:
        binary = tmp_path / "binary"
        binary.write_bytes(b"\xff\xfe")
        for file in ("/nowhere", str(binary)):
            (sentence,) = refused(
                environment={"SQLCACHE_UPSTREAM__PASSWORD_FILE": file}, upstream=self.URL
            )
            assert "password_file" in sentence


class TestSecretFiles:
    FILES = (("MEMCACHED", "secret", 16), ("ADMIN", "token", 8))

    @pytest.mark.parametrize(("section", "name", "shortest"), FILES)
    def test_what_a_file_holds_is_used_without_its_end_of_line(
        self, tmp_path: Path, section: str, name: str, shortest: int
    ) -> None:
        file = tmp_path / "file"
        file.write_text(shortest * "x" + "\n")
        loaded = settings(environment={f"SQLCACHE_{section}__{name.upper()}_FILE": str(file)})
        read = (loaded.memcached.read_secret, loaded.admin.read_token)[section == "ADMIN"]
        assert read() == shortest * "x"

    @pytest.mark.parametrize(("section", "name", "shortest"), FILES)
    def test_what_is_wrong_is_named_and_not_shown(
        self, tmp_path: Path, section: str, name: str, shortest: int
    ) -> None:
        file = tmp_path / "file"
        variable = f"SQLCACHE_{section}__{name.upper()}"
        cases: tuple[tuple[bytes, dict[str, str], str], ...] = (
            (b"\xff" * 99, {}, f"expected in {name}_file a text of ASCII that can be read"),
            (b"short \n", {}, f"expected at least {shortest} characters in {name}_file"),
            (b"x" * 99, {variable: "y" * 99}, f"expected {name}, or {name}_file, not both"),
        )
        for content, also, expected in cases:
            file.write_bytes(content)
            (sentence,) = refused(environment={f"{variable}_FILE": str(file), **also})
            assert sentence == f"{section.lower()}: {expected}"

    @pytest.mark.parametrize(("section", "name", "shortest"), FILES)
    def test_one_that_is_too_short_is_not_shown(
        self, section: str, name: str, shortest: int
    ) -> None:
        variable = f"SQLCACHE_{section}__{name.upper()}"
        (sentence,) = refused(environment={variable: "xyzzy"})
        path = f"{section.lower()}.{name}"
        assert sentence == f"{path} ({variable}): expected at least {shortest} characters"

    def test_one_that_may_not_be_read_is_named_with_its_cause(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = tmp_path / "file"
        file.write_text("x" * 16)
        for name in ("stat", "open"):
            method = getattr(Path, name)

            def denied(path: Path, *asked: Any, method: Any = method, **more: Any) -> Any:
                if path == file:
                    raise PermissionError(errno.EACCES, "Permission denied")
                return method(path, *asked, **more)

            with monkeypatch.context() as patched:
                patched.setattr(Path, name, denied)
                with pytest.raises(ConfigError) as error:
                    load(None, {"SQLCACHE_ADMIN__TOKEN_FILE": str(file)}, FLAGS)
            assert str(error.value) == (
                f"admin.token_file = {file} (SQLCACHE_ADMIN__TOKEN_FILE):"
                " cannot be read: Permission denied"
            )


class TestSizes:
    @pytest.mark.parametrize(
        ("given", "size"),
        [
            ("64MiB", 64 << 20),
            ("2 GiB", 2 << 30),
            (" 512KiB ", 512 << 10),
            ("67108864", 64 << 20),
        ],
    )
    def test_may_have_a_unit(self, given: str, size: int) -> None:
        assert settings(f"[cache]\nnear_bytes = '{given}'").near_bytes == size
        environment = {"SQLCACHE_CACHE__NEAR_BYTES": given}
        assert settings(environment=environment).near_bytes == size

    @pytest.mark.parametrize("given", ["64MB", "64mib", "MiB", "1.5GiB", "-1KiB", "64 M", "8TiB"])
    def test_are_refused_with_any_other(self, given: str) -> None:
        (sentence,) = refused(f"[cache]\nnear_bytes = '{given}'")
        assert "expected a whole number" in sentence
        assert sentence.endswith("of bytes, as 67108864 or 64MiB, or auto")

    def test_have_the_same_limits_with_one(self) -> None:
        (sentence,) = refused("[proxy]\nbuffer_bytes = '2GiB'")
        assert sentence.endswith("expected at most 1073741824")

    def test_are_of_bytes_alone(self) -> None:
        (sentence,) = refused("[proxy]\nmax_connections = '1KiB'")
        assert sentence.endswith("expected a whole number")


class TestAuto:
    @pytest.fixture
    def machine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """One on which processes take nothing themselves."""
        monkeypatch.setattr(module, "_PROCESS_BYTES", 0)
        monkeypatch.setattr(cgroup, "cpus", lambda: 4)
        monkeypatch.setattr(cgroup, "memory_limit_bytes", lambda: 128 << 20)

    @pytest.mark.usefixtures("machine")
    def test_workers_follow_the_cpus_and_memory_is_shared_among_them(self) -> None:
        loaded = settings(workers="auto")
        assert loaded.workers == 4
        assert loaded.near_bytes == 8 << 20
        assert settings().near_bytes == 32 << 20
        assert (loaded.statements_bytes, settings().statements_bytes) == (4 << 20, 16 << 20)
        assert (loaded.kept_bytes, settings().kept_bytes) == (4 << 20, 16 << 20)
        assert (loaded.transactions_bytes, settings().transactions_bytes) == (2 << 20, 8 << 20)

    @pytest.mark.usefixtures("machine")
    def test_the_embedded_store_is_for_one_process_and_half_of_the_memory(self) -> None:
        loaded = settings(workers="auto", memcached=["memory"])
        assert loaded.workers == 1
        assert loaded.memory_bytes == 64 << 20

    @pytest.mark.usefixtures("machine")
    def test_what_is_given_is_not_changed(self) -> None:
        toml = "[cache]\nnear_bytes = 100000000\n[memcached]\nmemory_bytes = 200000000\n"
        loaded = settings(toml, workers=3)
        assert (loaded.workers, loaded.near_bytes) == (3, 100_000_000)
        assert loaded.memory_bytes == 200_000_000

    @pytest.mark.parametrize("limit", [160, 256, 512, 1024, 4096])
    @pytest.mark.parametrize(
        ("nodes", "workers", "processes"), [(["memory"], 1, 1), (["a:1"], 1, 1), (["a:1"], 2, 3)]
    )
    def test_all_of_it_and_the_processes_are_less_than_the_limit(
        self,
        monkeypatch: pytest.MonkeyPatch,
        limit: int,
        nodes: list[str],
        workers: int,
        processes: int,
    ) -> None:
        monkeypatch.setattr(cgroup, "memory_limit_bytes", lambda: limit << 20)
        loaded = settings(workers=workers, memcached=nodes)
        each = loaded.near_bytes + loaded.statements_bytes + loaded.kept_bytes
        store = loaded.memory_bytes if nodes == ["memory"] else 0
        if limit > 160 or processes == 1:  # else they alone are more than that
            assert processes * 72_000_000 + workers * each + store < 0.95 * (limit << 20)
        assert min(loaded.near_bytes, loaded.statements_bytes, loaded.kept_bytes) >= 2 << 20

    def test_without_a_limit_the_defaults_are_fixed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cgroup, "memory_limit_bytes", lambda: None)
        assert (settings().near_bytes, settings().memory_bytes) == (64 << 20, 256 << 20)
        assert settings().kept_bytes == 256 << 20
        assert settings().transactions_bytes == 64 << 20


class TestEnvironment:
    def test_rules_are_given_in_json(self) -> None:
        environment = {"SQLCACHE_RULES": '[{"schema": "shop", "off": true}]'}
        assert (
            settings(environment=environment).rules
            == settings('[[rules]]\nschema = "shop"\noff = true\n').rules
        )

    @pytest.mark.parametrize("others", [{}, {"SQLCACHE_RULES": "[]"}])
    def test_a_part_of_a_list_is_refused(self, others: dict[str, str]) -> None:
        for toml in ("", "[[rules]]\noff = true\n"):
            assert refused(toml, {"SQLCACHE_RULES__0__OFF": "true", **others}) == [
                "SQLCACHE_RULES__0__OFF: there is no such setting; SQLCACHE_RULES is a list in JSON"
            ]

    @pytest.mark.parametrize("text", ["off", 100_000 * "["])
    def test_what_is_no_json_is_refused(self, text: str) -> None:
        (sentence,) = refused(environment={"SQLCACHE_RULES": text})
        assert sentence.startswith("SQLCACHE_RULES: expected a list in JSON")

    def test_what_is_no_rule_is_refused(self) -> None:
        assert refused(environment={"SQLCACHE_RULES": "[1]"}) == [
            "rules[0] = 1 (SQLCACHE_RULES): expected settings by their names, as [[rules]] makes"
            " them"
        ]

    def test_the_file_can_be_named(self, tmp_path: Path) -> None:
        (tmp_path / "other.toml").write_text("[cache]\nttl_s = 7\n")
        named = {"SQLCACHE_CONFIG": str(tmp_path / "other.toml")}
        assert load(None, named, FLAGS).settings.cache.ttl_s == 7
        with pytest.raises(ConfigError, match="there is no such file"):
            load(None, {"SQLCACHE_CONFIG": "nowhere.toml"}, FLAGS)


class TestRefusals:
    def test_an_unknown_setting_is_refused_with_a_suggestion(self) -> None:
        assert refused("[proxy]\nlisen = 'a:1'\n") == [
            "proxy.lisen (sqlcache.toml): there is no such setting; did you mean proxy.listen?"
        ]

    def test_an_unknown_section_is_refused(self) -> None:
        assert refused("[porxy]\nlisten = 'a:1'\n") == [
            "porxy (sqlcache.toml): there is no such section; did you mean [proxy]?"
        ]

    @pytest.mark.parametrize(
        ("name", "meant"),
        [("ttl_s", "cache.ttl_s"), ("mode", "cache.mode"), ("near_byte", "cache.near_bytes")],
    )
    def test_a_setting_without_its_section_is_refused(self, name: str, meant: str) -> None:
        with pytest.raises(ConfigError) as refusal:
            from_arguments({name: 600})
        assert str(refusal.value).splitlines()[-1] == (
            f"{name} (argument): there is no such setting; did you mean {meant}?"
        )

    def test_an_unknown_variable_of_a_section_is_refused(self) -> None:
        assert refused(environment={"SQLCACHE_CACHE__TLL_S": "1"}) == [
            "cache.tll_s (SQLCACHE_CACHE__TLL_S): there is no such setting;"
            " did you mean cache.ttl_s?"
        ]

    def test_what_is_no_text_is_told_to_be_one(self) -> None:
        assert refused("[memcached]\nprefix = 5\n") == [
            "memcached.prefix = 5 (sqlcache.toml): expected a text"
        ]

    def test_what_must_be_given_says_how(self) -> None:
        assert refused(upstream=None) == [
            "upstream.url: is not set; give it as --upstream, as SQLCACHE_UPSTREAM__URL"
            " or as url in section [upstream] of sqlcache.toml"
        ]

    def test_a_variable_that_may_have_been_meant_for_it_is_named(self) -> None:
        missing, meant = refused(upstream=None, environment={"SQLCACHE_UPSTREAM_URL": "s3cret"})
        assert missing.startswith("upstream.url: is not set")
        assert meant == (
            "SQLCACHE_UPSTREAM_URL: there is no such setting, it changes nothing;"
            " did you mean SQLCACHE_UPSTREAM__URL?"
        )

    @pytest.mark.parametrize(
        ("node", "expected"),
        [
            ("h", "expected HOST:PORT, as in 127.0.0.1:11211"),
            ("::1:1", "expected HOST:PORT, an IPv6 address in brackets, as in [::1]:11211"),
            ("h:0", "expected the port that the node listens on, which is never 0"),
        ],
    )
    def test_a_node_that_nobody_could_reach_is_refused(self, node: str, expected: str) -> None:
        (sentence,) = refused(memcached=["10.0.0.5:11211", node])
        assert sentence.endswith(f"(--memcached): {expected}")

    @pytest.mark.parametrize(
        ("node", "again"),
        [
            *[("a:1", "a:1"), ("a:1", "A:1"), ("a:1", "a.:1"), ("[::1]:1", "[0:0::1]:1")],
            ("[::ffff:a]:1", "[::FFFF:A]:1"),
        ],
    )
    def test_a_node_that_is_there_twice_is_refused(self, node: str, again: str) -> None:
        (sentence,) = refused(memcached=[node, "other:1", again])
        assert sentence.endswith("expected every node once")
        assert settings(memcached=[node, "a:2", "b:1"]).memcached.nodes[0] == node

    @pytest.mark.parametrize("listen", ["*:3307", "*.example:3307"])
    def test_a_wildcard_is_refused_and_what_is_meant_is_named(self, listen: str) -> None:
        (sentence,) = refused(listen=listen)
        assert sentence.endswith("all addresses are 0.0.0.0:3307, or [::]:3307")

    def test_all_that_is_wrong_is_said_at_once(self) -> None:
        assert len(refused("[cache]\nttl_s = 0\nlease_wait_s = -1\n", workers=0)) == 3

    @pytest.mark.parametrize(
        ("toml", "expected"),
        [
            ("[proxy]\nworkers = 0", "proxy.workers = 0 (sqlcache.toml): expected at least 1"),
            (
                "[memcached]\noutage_s = 1.9",
                "memcached.outage_s = 1.9 (sqlcache.toml): expected at least 2.0",
            ),
            ("[cache]\nttl_s = 2592001", "expected at most 2592000"),
            ("[cache]\nttl_s = 1.5", "expected a whole number"),
            (
                "[cache]\nttl_s = 1e99",
                "cache.ttl_s = 1e+99 (sqlcache.toml): expected a whole number of fewer digits",
            ),
            (f"[proxy]\nmax_connections = {10**20}", "expected at most 1000000"),
            (f"[proxy]\nmax_connections_per_user = {10**20}", "expected at most 1000000"),
            ("[cache]\nskip_unhit_stores = 'perhaps'", "expected true or false"),
            ("[cache]\nmode = 'dark'", "cache.mode = dark (sqlcache.toml): expected"),
            ("[cache]\nverify_percent = 101", "expected at most 100"),
            ("[memcached]\ntimeout_s = 0", "expected more than 0"),
            ("[memcached]\ntimeout_s = nan", "expected a number"),
            ("[memcached]\ntimeout_s = 'soon'", "expected a number"),
            ("[memcached]\nprefix = 'a b'", "expected 1 to 64 printable ASCII characters"),
            ("[memcached]\nreconnect_min_s = 3", "expected reconnect_min_s to be at most"),
            ("[proxy]\ntls_key = '/nonexistent'", "expected the path of a file that exists"),
            ("[proxy]\ntls_key = '/dev/null'", "expected the path of a file that exists"),
            (f"[proxy]\ntls_key = '/{'x' * 300}'", "cannot be read: File name too long"),
            (
                "[proxy]\nlisten = 3307",
                "proxy.listen = 3307 (sqlcache.toml): expected HOST:PORT, as in 127.0.0.1:3307",
            ),
            ("[admin]\nlisten = 'a..b:1'", "'a..b' cannot be the name of a host"),
            ("[admin]\nlisten = true", "admin.listen = True (sqlcache.toml): expected HOST:PORT"),
            ("[cache]\nnear_bytes = true", "cache.near_bytes = True (sqlcache.toml): expected a"),
            ("[memcached]\ntimeout_s = true", "expected a number"),
            ("[proxy]\nbuffer_bytes = 99999999999999999999", "expected at most 1073741824"),
            ("[proxy]\nworkers = 'all'", "expected a whole number, or auto"),
            ("[cache]\nnear_bytes = -1", "expected at least 0, or auto"),
            ("[cache]\nmode = false", "expected 'on', 'shadow' or 'off'"),
            ("[admin]\ntoken = 'pässwort'", "expected in token, or token_file, one line of"),
            ("[admin]\ntoken = 'password '", "expected in token, or token_file, one line of"),
            ("[log]\nlevel = 'loud'", "expected 'debug', 'info', 'warning' or 'error'"),
            (
                "[proxxy]\nlisten = 'a:1'",
                "proxxy (sqlcache.toml): there is no such section; did you mean [proxy]?",
            ),
            ("[[rule]]\noff = true", "expected a section, as in [proxy]; did you mean [[rules]]?"),
            ("[rules]\noff = true", "rules (sqlcache.toml): expected a list, as [[rules]] makes"),
        ],
    )
    def test_a_value_out_of_its_limits_is_told_them(self, toml: str, expected: str) -> None:
        (sentence,) = refused(toml)
        assert expected in sentence

    @pytest.mark.parametrize(
        ("toml", "expected"),
        [
            (
                "table = 'orders'\noff = true",
                "rules[0].table = orders (sqlcache.toml): expected SCHEMA.TABLE, as in shop.orders",
            ),
            (
                "table = '`shop`.`orders`'\noff = true",
                "rules[0].table = `shop`.`orders` (sqlcache.toml): expected SCHEMA.TABLE without"
                " quotes, wildcards or spaces around names, as in shop.orders",
            ),
            (
                "schema = 'shop '\noff = true",
                "rules[0].schema = shop  (sqlcache.toml): expected a name without quotes, wildcards"
                " or spaces around it",
            ),
            (
                "table = 'shop.*'\noff = true",
                "rules[0].table = shop.* (sqlcache.toml): expected SCHEMA.TABLE without quotes,"
                " wildcards or spaces around names, as in shop.orders",
            ),
            (
                "schema = ''\noff = true",
                "rules[0].schema =  (sqlcache.toml): expected a text that is not empty",
            ),
            (
                "matches = '('\noff = true",
                "rules[0].matches = ( (sqlcache.toml): expected a regular expression: missing ),"
                " unterminated subpattern at position 0",
            ),
            ("ttl_s = 0", "rules[0].ttl_s = 0 (sqlcache.toml): expected at least 1"),
            ("off = 'perhaps'", "rules[0].off = perhaps (sqlcache.toml): expected true or false"),
            (
                "tabel = 'shop.orders'\noff = true",
                "rules[0].tabel (sqlcache.toml): there is no such setting;"
                " did you mean rules[0].table?",
            ),
            (
                "table = 'shop.orders'",
                "rules[0] (sqlcache.toml): expected off, ttl_s, max_staleness_ms,"
                " stale_while_revalidate_s or row_tags in it",
            ),
        ],
    )
    def test_a_wrong_rule_is_told_what_was_expected(self, toml: str, expected: str) -> None:
        assert refused(f"[[rules]]\n{toml}\n") == [expected]

    def test_a_name_may_have_in_it_what_servers_allow(self) -> None:
        toml = '[[rules]]\ntable = "it\'s.50% *`"\noff = true\n'
        assert settings(toml).rules[0].table == "it's.50% *`"

    @pytest.mark.parametrize(
        "name",
        ["`shop`.orders", '"shop"."orders"', "shop. orders", "shop.orders ", "shop.*", "s.%"],
    )
    def test_names_that_no_table_has_are_refused_wherever_tables_are_named(self, name: str) -> None:
        for toml in (
            f"[[rules]]\ntable = '{name}'\noff = true",
            f"[[routines]]\nname = 'shop.f'\nwrites = ['{name}']",
            f"[[routines]]\nname = '{name}'",
        ):
            (sentence,) = refused(toml)
            assert f" = {name} (sqlcache.toml): expected SCHEMA." in sentence
            assert " without quotes" in sentence

    def test_a_tables_name_may_have_spaces_inside(self) -> None:
        (rule,) = settings("[[rules]]\ntable = 'shop.order lines'\noff = true\n").rules
        assert rule.table == "shop.order lines"

    @pytest.mark.parametrize(
        ("expected", "toml"),
        [
            ("rules[0].statement = SELECT 'x", 'statement = "SELECT \'x"\noff = true'),
            ("rules[0].schema = blog", "table = 'shop.orders'\nschema = 'blog'\noff = true"),
        ],
    )
    def test_a_rule_that_cannot_be_meant_is_refused(self, expected: str, toml: str) -> None:
        loaded = settings(f"[[rules]]\n{toml}\n")
        with pytest.raises(ConfigError, match=f"^{re.escape(expected)}.*: expected"):
            policy_of(loaded)

    @pytest.mark.parametrize(
        ("toml", "expected"),
        [
            ("deterministic = true", "routines[0].name: is not set"),
            ("name = 'a.b.c'", "routines[0].name = a.b.c (sqlcache.toml): expected SCHEMA.NAME"),
            (
                "name = 'shop.f'\nreads = ['t']",
                "routines[0].reads = t (sqlcache.toml): expected SCHEMA.TABLE",
            ),
        ],
    )
    def test_a_wrong_declaration_is_told_what_was_expected(self, toml: str, expected: str) -> None:
        (sentence,) = refused(f"[[routines]]\n{toml}\n")
        assert sentence.startswith(expected)

    @pytest.mark.parametrize("names", [("shop.f", "shop.F"), ("f", "F")])
    def test_a_second_declaration_of_a_routine_is_refused(self, names: tuple[str, str]) -> None:
        (sentence,) = refused("".join(f"[[routines]]\nname = '{name}'\n" for name in names))
        assert sentence.startswith(f"routines[1].name = {names[1]}: expected another name")
        settings("".join(f"[[routines]]\nname = '{name}'\n" for name in ("f", "s.f", "t.f")))

    @pytest.mark.parametrize(
        ("toml", "expected"),
        [
            ("[upstream]\ntls = 'on'", "upstream.tls = on (sqlcache.toml): expected 'as-client',"),
            (
                "[upstream]\ntls_ca = 'sqlcache.toml'",
                "upstream (sqlcache.toml): expected tls = verify-ca or verify-identity",
            ),
            (
                "[upstream]\ntls_key = 'sqlcache.toml'",
                "upstream (sqlcache.toml): expected tls_certificate and tls_key together",
            ),
            (
                "[proxy]\ntls_required = true\ntls_auto = false",
                "proxy (sqlcache.toml): expected tls_certificate",
            ),
        ],
    )
    def test_tls_that_cannot_be_is_refused(self, toml: str, expected: str) -> None:
        (sentence,) = refused(toml)
        assert sentence.replace(" (sqlcache.toml)", "").startswith(
            expected.replace(" (sqlcache.toml)", "")
        )

    def test_a_certificate_without_its_key_is_refused(self) -> None:
        Path("cert.pem").write_text("")
        (sentence,) = refused(tls_certificate="cert.pem")
        assert sentence == "proxy: expected tls_certificate and tls_key together, or neither"

    def test_one_address_is_not_for_two_doors(self) -> None:
        assert refused(listen="[::1]:3307", admin="[::1]:3307") == [
            "admin.listen = [::1]:3307: expected another address than proxy.listen has"
        ]
        assert settings(listen="[::1]:0", admin="[::1]:0").admin.listen == HostPort("::1", 0)

    def test_the_memory_store_is_for_one_process(self) -> None:
        assert settings(memcached=["memory"]).memcached.in_memory
        (sentence,) = refused(memcached=["memory"], workers=2)
        assert "expected proxy.workers = 1" in sentence

    @pytest.mark.parametrize("nodes", [[], ["memory", "a:1"], ["a:1", "a:1"], ["a"], "", 3])
    def test_nodes_that_make_no_ring_are_refused(self, nodes: object) -> None:
        (sentence,) = refused(memcached=nodes)
        assert sentence.startswith("memcached.nodes = ")


class TestSecrets:
    WRONG = (
        "mysql://cat:s3cret@",
        "mysql://cat:s3cret@db:port",
        "mysql://cat:s3cret@db:0",
        "mysql://cat:s3cret@db:3306/schema",
        "mysql://cat:s3cret@db?ssl=1",
        "mysql://cat:s3c/s3cret@db",
        "postgres://cat:s3cret@db",
        "cat:s3cret@db",
    )

    @pytest.mark.parametrize("url", WRONG)
    def test_a_wrong_url_is_explained_without_its_password(self, url: str) -> None:
        (sentence,) = refused(upstream=url)
        assert "expected mysql://USER:PASSWORD@HOST:PORT" in sentence
        assert "s3c" not in sentence

    @pytest.mark.parametrize("name", ["listen", "admin", "memcached", "workers", "log_level"])
    def test_a_url_given_to_another_setting_is_shown_without_its_password(self, name: str) -> None:
        url = "mysql://cat:s3@c/ret@db:3306"
        given: dict[str, Any] = {name: [url] if name == "memcached" else url}
        (sentence,) = refused(**given)
        assert "s3@c" not in sentence
        assert "ret@" not in sentence

    def test_printing_settings_does_not_print_the_password(self) -> None:
        loaded = settings()
        assert loaded.upstream.read_password() == "s3cret"
        shown = [repr(loaded), str(loaded), *(f"{path} {value}" for path, value in loaded.items())]
        assert "s3cret" not in "\n".join(shown)


class TestSettings:
    def test_they_never_change(self) -> None:
        loaded = settings()
        with pytest.raises(ValidationError):
            loaded.cache.ttl_s = 1
        with pytest.raises(ValidationError):
            loaded.cache = loaded.cache

    def test_they_reach_another_process_unchanged(self) -> None:
        loaded = settings()
        assert pickle.loads(pickle.dumps(loaded)) == loaded

    def test_every_setting_is_documented(self) -> None:
        sections = {name: field.annotation for name, field in Settings.model_fields.items()}
        for model in (sections | {"rules": RuleSettings, "routines": RoutineSettings}).values():
            assert isinstance(model, type)
            assert issubclass(model, BaseModel)
            assert model.__doc__
            for name, field in model.model_fields.items():
                assert field.description, name

    def test_numbers_of_time_and_size_have_their_unit_in_the_name(self) -> None:
        clients = {"proxy.max_connections", "proxy.max_connections_per_user"}
        counts = {"proxy.workers", *clients}
        for path, value in settings().items():
            if type(value) in (int, float) and path not in counts:
                assert path.endswith(("_s", "_ms", "_bytes", "_percent")), path

    def test_the_upstream_answers_by_its_parts(self) -> None:
        upstream = settings(
            upstream="mysql://cat:p%40%2F%3Aw@[::1]?unix_socket=/run/my.sock"
        ).upstream
        assert (upstream.user, upstream.read_password()) == ("cat", "p@/:w")
        assert (upstream.host, upstream.port) == ("::1", 3306)
        assert upstream.unix_socket == "/run/my.sock"

    def test_nodes_answer_as_addresses(self) -> None:
        memcached = settings(memcached=["10.0.0.1:11211", "[::1]:3"]).memcached
        assert memcached.addresses == (HostPort("10.0.0.1", 11211), HostPort("::1", 3))


class TestHostPort:
    @pytest.mark.parametrize("text", ["127.0.0.1:3307", "[::1]:3306", "db.example:0", "h:65535"])
    def test_it_reads_what_it_writes(self, text: str) -> None:
        assert str(HostPort.parse(text)) == text

    @pytest.mark.parametrize(
        "text",
        ["", ":", "h", "h:", ":1", "::1:3306", "h:65536", "h:-1", "h:1x", "h:²", "u@h:1", "[]:1"],
    )
    def test_other_text_is_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match="expected"):
            HostPort.parse(text)


@given(st.text())
@example("mysql://[")
@example("mysql://u:p@h:99999")
def test_any_text_is_a_url_or_a_value_error(text: str) -> None:
    for url in (text, f"mysql://u:{text}@h:1"):
        try:
            parsed = MySQLUrl.parse(url)
        except ValueError:
            continue
        assert parsed.user
        assert parsed.host
