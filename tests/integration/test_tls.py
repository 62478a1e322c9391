"""TLS with MySQL in every mode, with clients, and what becomes of passwords in between."""

from __future__ import annotations

import getpass
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql
import pytest
from pymysql import _auth

from sqlcache.demo.servers import PrivateMariaDB, PrivateSqlcache, PrivateSqlServer, wait_until
from sqlcache.mysql.constants import Capability
from tests.certificates import Authority, Certificate
from tests.conftest import ProxyFactory
from tests.fakes.raw_client import COLLATION, OLD, RawClient, packets_of
from tests.servers import MySQLMissing, PrivateMySQL

CR_SSL_CONNECTION_ERROR = 2026
ER_ACCESS_DENIED = 1045
ER_ACCESS_DENIED_NO_PASSWORD = 1698
ER_SECURE_TRANSPORT_REQUIRED = 3159


@dataclass(frozen=True)
class Secured:
    """A SQL server with TLS for `localhost` and not for 127.0.0.1, and what its clients need."""

    server: PrivateSqlServer
    authority: Authority
    wrong_authority: Authority
    own: Certificate  # for clients of the server, and for sqlcache's clients

    @property
    def is_mysql(self) -> bool:
        return self.server.name == "mysqld"


@dataclass
class At:
    """A SQL server under another address."""

    service_url: str


@pytest.fixture(scope="module", params=["mariadb", "mysql"])
def secured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority, wrong = Authority(folder / "right"), Authority(folder / "wrong")
    certificate = authority.issue("server", "DNS:localhost")
    options = (
        f"--ssl-ca={authority.certificate}",
        f"--ssl-cert={certificate.certificate}",
        f"--ssl-key={certificate.key}",
    )
    with _server(request.param, folder / "server", options) as server:
        # So that the service account, too, needs TLS or does not, as a test wants.
        own = authority.issue("own", "DNS:localhost", "IP:127.0.0.1")
        yield Secured(server, authority, wrong, own)


@pytest.fixture(scope="module", params=["mariadb", "mysql"])
def unsecured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PrivateSqlServer]:
    """A SQL server without TLS."""
    option = "--tls-version=" if request.param == "mysql" else "--skip-ssl"
    folder = tmp_path_factory.mktemp("unsecured")
    with _server(request.param, folder, (option,)) as server:
        yield server


def _server(kind: str, folder: Path, options: tuple[str, ...]) -> PrivateSqlServer:
    if kind == "mariadb":
        return PrivateMariaDB(folder, options)
    try:
        return PrivateMySQL(folder, options)
    except MySQLMissing as missing:
        pytest.skip(str(missing))


Start = Callable[..., PrivateSqlcache]


@pytest.fixture
def start(secured: Secured, proxy: ProxyFactory) -> Start:
    """`start(mode, host, ca)` is a sqlcache before the secured server, with TLS for clients."""

    def begin(
        mode: str, *, host: str = "localhost", ca: Path | None = None, **settings: Any
    ) -> PrivateSqlcache:
        if mode.startswith("verify-"):
            settings["upstream__tls_ca"] = str(ca or secured.authority.certificate)
        url = secured.server.service_url.replace("127.0.0.1", host)
        own = {
            "proxy__tls_certificate": str(secured.own.certificate),
            "proxy__tls_key": str(secured.own.key),
        }
        return proxy(At(url), "memory", upstream__tls=mode, **own, **settings)

    return begin


@pytest.fixture
def account(secured: Secured) -> Iterator[dict[str, str]]:
    """A new account, whose password the server has to be told: it remembers it from no login."""
    name = f"u{time.monotonic_ns():x}"
    secured.server.sql(f"CREATE USER '{name}'@'%' IDENTIFIED BY 'open sesame'")
    yield {"user": name, "password": "open sesame"}
    secured.server.sql(f"DROP USER '{name}'@'%'")


def connect(server: Any, secured: Secured, tls: bool, **login: Any) -> pymysql.Connection[Any]:
    """A client; with TLS it verifies sqlcache's certificate."""
    known = {"user": secured.server.user, "password": secured.server.password, **login}
    own = {"ssl": ssl.create_default_context(cafile=str(secured.authority.certificate))}
    secure = own if tls else {"ssl_disabled": True}
    return pymysql.connect(host=server.host, port=server.port, read_timeout=20, **known, **secure)


def cipher(connection: pymysql.Connection[Any]) -> str:
    """What encrypts the server's side; "" for nothing."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
        rows = cursor.fetchall()
    value: str = rows[0][1]
    return value


TLS = pytest.mark.parametrize("tls", [False, True], ids=["plain client", "client with TLS"])


@TLS
@pytest.mark.parametrize(
    ("mode", "encrypts"),
    [
        ("as-client", None),
        ("disabled", False),
        ("preferred", True),
        ("required", True),
        ("verify-ca", True),
        ("verify-identity", True),
    ],
)
def test_the_mode_says_whether_the_servers_side_speaks_tls(
    secured: Secured, start: Start, mode: str, encrypts: bool | None, tls: bool
) -> None:
    server = start(mode)
    with closing(connect(server, secured, tls)) as connection:
        assert bool(cipher(connection)) is (tls if encrypts is None else encrypts)
        with connection.cursor() as cursor:
            cursor.execute("SELECT REPEAT('x', 1000000)")
            assert cursor.fetchall() == (("x" * 1_000_000,),)
    assert server.metrics()["sqlcache_catalog_loads_total"] > 0


@TLS
@pytest.mark.parametrize("mode", ["verify-ca", "verify-identity"])
def test_a_certificate_of_another_authority_is_refused(
    secured: Secured, start: Start, mode: str, tls: bool
) -> None:
    server = start(mode, ca=secured.wrong_authority.certificate)
    with pytest.raises(pymysql.OperationalError, match="certificate") as refused:
        connect(server, secured, tls)
    assert refused.value.args[0] == CR_SSL_CONNECTION_ERROR
    assert server.metrics()["sqlcache_catalog_loads_total"] == 0


def test_a_certificate_for_another_host_is_refused_where_the_identity_counts(
    secured: Secured, start: Start
) -> None:
    server = start("verify-identity", host="127.0.0.1")
    with pytest.raises(pymysql.OperationalError, match="certificate") as refused:
        connect(server, secured, tls=True)
    assert refused.value.args[0] == CR_SSL_CONNECTION_ERROR
    assert server.metrics()["sqlcache_catalog_loads_total"] == 0
    with closing(connect(start("verify-ca", host="127.0.0.1"), secured, True)) as connection:
        assert cipher(connection)


@pytest.mark.parametrize("mode", ["required", "verify-ca", "verify-identity"])
def test_a_server_without_tls_is_refused_where_tls_is_required(
    unsecured: PrivateSqlServer, proxy: ProxyFactory, mode: str, tmp_path: Path
) -> None:
    server = proxy(unsecured, "memory", upstream__tls=mode)
    with pytest.raises(pymysql.OperationalError, match="does not offer it") as refused:
        server.connect(user=unsecured.user, password=unsecured.password)
    assert refused.value.args[0] == CR_SSL_CONNECTION_ERROR
    assert server.metrics()["sqlcache_catalog_loads_total"] == 0


@pytest.mark.parametrize("mode", ["as-client", "preferred", "disabled"])
def test_a_server_without_tls_is_served_where_tls_is_not_required(
    unsecured: PrivateSqlServer, proxy: ProxyFactory, mode: str
) -> None:
    server = proxy(unsecured, "memory", upstream__tls=mode)
    login = {"user": unsecured.user, "password": unsecured.password}
    with closing(server.connect(**login)) as connection:
        assert cipher(connection) == ""
    assert server.metrics()["sqlcache_catalog_loads_total"] > 0


def test_a_client_that_goes_amid_the_servers_handshake_broke_off(
    secured: Secured, start: Start
) -> None:
    server = start("required", proxy__login_timeout_s=30)
    with RawClient(server) as client:
        client.read_greeting()
        secured.server.freeze()
        try:
            client.send(packets_of(client.response("app", "", "", OLD), 1))
            client.close()
            failed = 'sqlcache_logins_failed_total{code="broke off"}'
            wait_until(lambda: server.metrics().get(failed) == 1, 10, "a login that broke off")
        finally:
            secured.server.thaw()
    assert "no TLS with MySQL" not in server.log_text()


@pytest.mark.parametrize("mode", ["preferred", "verify-identity"])
def test_a_server_that_wants_a_certificate_is_shown_sqlcaches(
    secured: Secured, start: Start, account: dict[str, str], mode: str
) -> None:
    secured.server.sql(f"ALTER USER '{account['user']}'@'%' REQUIRE X509")
    own = {
        "upstream__tls_certificate": str(secured.own.certificate),
        "upstream__tls_key": str(secured.own.key),
    }
    with closing(connect(start(mode, **own), secured, True, **account)) as connection:
        assert cipher(connection)
    with pytest.raises(pymysql.OperationalError) as refused:
        connect(start(mode), secured, True, **account)
    assert refused.value.args[0] == ER_ACCESS_DENIED


# --- passwords --------------------------------------------------------------------------------


@TLS
@pytest.mark.parametrize("mode", ["disabled", "required"])
def test_a_password_the_server_has_to_be_told_reaches_it(
    secured: Secured, start: Start, account: dict[str, str], mode: str, tls: bool
) -> None:
    server = start(mode)
    with pytest.raises(pymysql.OperationalError) as refused:
        connect(server, secured, tls, user=account["user"], password="open barley")
    assert refused.value.args[0] == ER_ACCESS_DENIED
    for _ in range(2):  # told, and remembered
        with closing(connect(server, secured, tls, **account)) as connection:
            assert bool(cipher(connection)) is (mode == "required")


@TLS
@pytest.mark.parametrize("mode", ["disabled", "required"])
def test_so_does_the_password_of_another_user_on_the_same_connection(
    secured: Secured, start: Start, account: dict[str, str], mode: str, tls: bool
) -> None:
    with closing(connect(start(mode), secured, tls)) as connection:
        for _ in range(2):
            _change_user(connection, **account)
            with connection.cursor() as cursor:
                cursor.execute("SELECT USER()")
                assert cursor.fetchall()[0][0].startswith(account["user"])


@pytest.mark.parametrize(
    ("mode", "tls"),
    [("disabled", False), ("required", False), ("socket", False), ("socket", True)],
    ids=["disabled", "required", "socket", "socket, the client in tls"],
)
@pytest.mark.parametrize("password", ["open sesame", ""], ids=["password", "no password"])
def test_so_does_one_that_is_encrypted_at_once(
    secured: Secured,
    start: Start,
    proxy: ProxyFactory,
    account: dict[str, str],
    mode: str,
    tls: bool,
    password: str,
) -> None:
    """By a client without TLS, or for a server that takes its socket for no better than TCP."""
    sql = secured.server
    if isinstance(sql, PrivateMariaDB):
        pytest.skip("MariaDB has no sha256_password")
    user = account["user"]
    sql.sql(f"ALTER USER {user} IDENTIFIED WITH sha256_password BY '{password}'")
    server = (
        proxy(
            At(f"{sql.service_url}?unix_socket={sql.socket}"),
            "memory",
            upstream__tls="disabled",
            proxy__tls_certificate=str(secured.own.certificate),
            proxy__tls_key=str(secured.own.key),
        )
        if mode == "socket"
        else start(mode)
    )
    with closing(connect(server, secured, tls)) as connection:
        connection.server_public_key = None  # for which it asks anew, as others do
        _change_user(connection, user, password)
        assert bool(cipher(connection)) is (mode == "required")
    with closing(connect(server, secured, tls, user=user, password=password)) as connection:
        assert bool(cipher(connection)) is (mode == "required")
    with pytest.raises(pymysql.OperationalError) as refused:
        connect(server, secured, tls, user=user, password="open barley")
    assert refused.value.args[0] == ER_ACCESS_DENIED


def _change_user(connection: Any, user: str, password: str) -> None:
    """COM_CHANGE_USER, answered by the plugin the greeting proposed."""
    plugin = connection._auth_plugin_name
    scramble: Any = _auth.scramble_native_password
    if plugin == "caching_sha2_password":
        scramble = _auth.scramble_caching_sha2
    data = scramble(password.encode(), connection.salt[:20])
    payload = user.encode() + b"\0" + bytes((len(data),)) + data + b"\0"
    payload += (45).to_bytes(2, "little") + plugin.encode() + b"\0\0"
    connection._execute_command(0x11, payload)
    connection.password = password.encode()
    packet = connection._read_packet()
    while not packet.is_ok_packet():
        if packet.is_auth_switch_request():
            packet.read_uint8()
            packet = connection._process_auth(packet.read_string(), packet)
        else:
            packet = _auth.caching_sha2_password_auth(connection, packet)


def test_a_socket_is_as_secure_as_tls(
    secured: Secured, proxy: ProxyFactory, account: dict[str, str]
) -> None:
    server = proxy(
        At(f"{secured.server.service_url}?unix_socket={secured.server.socket}"), "memory"
    )
    with closing(connect(server, secured, False, **account)) as connection:
        assert cipher(connection) == ""


def test_nobody_logs_in_as_the_user_this_process_is_for_the_servers_system(
    tmp_path: Path, proxy: ProxyFactory
) -> None:
    """A server may ask who is named as the peer's uid for no password; the peer is sqlcache."""
    name = getpass.getuser()
    with PrivateMariaDB(tmp_path / "trusting") as server:
        for user in {name, "other"}:
            server.sql(
                f"CREATE OR REPLACE USER '{user}'@'%' IDENTIFIED VIA unix_socket AS '{name}'"
            )
        url = f"{server.service_url}?unix_socket={server.socket}"
        relay = proxy(At(url), "memory")
        denied = pytest.raises(pymysql.err.OperationalError, match="Access denied for user")
        for named in (name, f"'{name}'"):  # servers take such quotes off
            with denied as refused:
                relay.connect(user=named, password="wrong")
            assert refused.value.args[0] == ER_ACCESS_DENIED_NO_PASSWORD
        account = {"user": server.user, "password": server.password}
        with closing(relay.connect(**account)) as connection, denied:
            _change_user(connection, name, "wrong")
        with closing(server.connect(**account)) as direct:
            direct.ping()
        own = proxy(At(f"mysql://other@localhost?unix_socket={server.socket}"), "memory")
        with pytest.raises(pymysql.err.OperationalError, match="Access denied for user"):
            own.connect(user="other", password="wrong")


@pytest.mark.parametrize("kind", [PrivateMariaDB, PrivateMySQL])
def test_nor_by_other_bytes_that_the_server_takes_for_the_name(
    tmp_path: Path, proxy: ProxyFactory, kind: type[PrivateSqlServer]
) -> None:
    """MySQL reads a name up to where it is no text; armscii8 has some of ASCII twice."""
    name, own = getpass.getuser(), "sql-cache"
    is_mysql = kind is PrivateMySQL
    plugin = "auth_socket" if is_mysql else "unix_socket"
    account = f"'{name}'@'localhost'"
    try:
        server = kind(tmp_path / "server", ("--plugin-load-add=auth_socket.so",) * is_mysql)
    except MySQLMissing as missing:
        pytest.skip(str(missing))
    spellings = [(own.encode(), COLLATION), (b"sql\xaccache", 32), (b"sql\xaccache", 64)]
    if is_mysql:
        own_name = name.encode()
        spellings += [(own_name + b"\xff", COLLATION), (own_name + b"\x81", 13)]
        spellings += [(own_name + b"\x81", 28), (own_name + b"\xc3x", 0)]
    with server:
        server.sql(
            f"CREATE USER IF NOT EXISTS {account}; ALTER USER {account} IDENTIFIED WITH {plugin};"
            f"CREATE USER '{own}'@'localhost'; CREATE USER nobody@'%';"
            f"GRANT SELECT, SHOW VIEW, TRIGGER ON *.* TO '{own}'@'localhost'"
        )
        relay = proxy(At(f"mysql://{own}@localhost?unix_socket={server.socket}"), "memory")
        for user, collation in spellings:
            quoted = b"'" + user[: len(name)] + b"'" + user[len(name) :]
            for sent in (user, quoted) if user.startswith(name.encode()) else (user,):
                with pytest.raises(PermissionError, match="MySQL would ask no password"):
                    RawClient.logged_in(relay, sent, "", collation=collation)
            with RawClient.logged_in(relay, "nobody", "") as client:
                refused = client.change_user(user, collation)
                assert refused[1:3] == ER_ACCESS_DENIED_NO_PASSWORD.to_bytes(2, "little")


def test_a_password_in_clear_text_is_not_sent_on_without_tls(
    secured: Secured, start: Start
) -> None:
    context = ssl.create_default_context(cafile=str(secured.authority.certificate))
    context.check_hostname = False
    capabilities = OLD | Capability.SSL
    with RawClient(start("disabled")) as client:
        client.read_greeting()
        client.start_tls(context, OLD, one_segment=False)
        head = client.response("app", "", "s", capabilities)[:32]
        client.send(packets_of(head + b"app\0\x07secret\0s\0mysql_clear_password\0", 2))
        sequence, refused = client.read_packet()
        assert sequence == 3
        assert refused[:3] == b"\xff" + ER_SECURE_TRANSPORT_REQUIRED.to_bytes(2, "little")


def test_clients_without_tls_are_refused_where_it_is_required(
    secured: Secured, start: Start
) -> None:
    server = start("as-client", proxy__tls_required=True)
    with pytest.raises(pymysql.OperationalError, match="insecure transport") as refused:
        connect(server, secured, tls=False)
    assert refused.value.args[0] == ER_SECURE_TRANSPORT_REQUIRED
    with closing(connect(server, secured, tls=True)) as connection:
        assert cipher(connection)


def test_a_login_is_read_by_the_capabilities_of_the_request_for_tls(
    secured: Secured, start: Start
) -> None:
    """As servers do: by others its schema would be another one."""
    secured.server.sql(
        "CREATE DATABASE s; CREATE TABLE s.t (v INT); INSERT INTO s.t VALUES (0);"
        "CREATE DATABASE other; CREATE TABLE other.t (v INT); INSERT INTO other.t VALUES (0);"
        "CREATE USER nobody; GRANT ALL ON *.* TO nobody"
    )
    relay = start("as-client", upstream__catalog_refresh_s=3600)
    with closing(connect(relay, secured, tls=True, database="s", autocommit=True)) as session:

        def is_hit() -> bool:
            before = relay.metrics()["sqlcache_hits_total"]
            assert total() == 0
            return relay.metrics()["sqlcache_hits_total"] > before

        def total() -> int:
            with session.cursor() as cursor:
                cursor.execute("SELECT CAST(SUM(v) AS SIGNED) FROM t")
                ((found,),) = cursor.fetchall()
            return int(found)

        wait_until(is_hit, 20, "a hit")
        with RawClient(relay) as client:
            client.read_greeting()
            trusting = ssl.create_default_context(cafile=str(secured.authority.certificate))
            trusting.check_hostname = False
            asked = OLD | Capability.PLUGIN_AUTH_LENENC_CLIENT_DATA
            client.start_tls(trusting, asked, one_segment=False)
            answered = OLD | Capability.CONNECT_WITH_DB
            head = struct.pack("<IIB23x", answered, 1 << 30, COLLATION)
            found = b"\x04\0abcds\0no_plugin\0".ljust(0xFC, b"x")
            said = head + b"nobody\0\xfc" + found + b"other\0no_plugin\0"
            client.send(packets_of(said, 2))
            client.authenticate("")
            client.sql("UPDATE t SET v = 1")
        assert secured.server.sql("SELECT v FROM s.t") == ((1,),)
        assert total() == 1
    secured.server.sql("DROP DATABASE s; DROP DATABASE other; DROP USER nobody")
