"""`[upstream]`: the MySQL server, how it is reached, and by which account."""

from typing import Literal, Self

from pydantic import Field, model_validator

from sqlcache.settings.section import Section, expect_together
from sqlcache.settings.values import File, Seconds, UpstreamUrl


class UpstreamSettings(Section):
    """The MySQL server that has the data, and the account sqlcache reads its catalog with."""

    url: UpstreamUrl = Field(
        description="mysql://USER:PASSWORD@HOST:PORT, perhaps ?unix_socket=PATH; clients do not"
        " use this account, they log in as themselves."
    )
    password_file: File | None = Field(
        default=None,
        description="A file with the password, as Docker, Kubernetes and systemd mount secrets;"
        " then `url` has none. It is read again for each login, so the password may be changed.",
    )
    connect_timeout_s: Seconds = Field(
        default=5.0, description="For one connection to be accepted."
    )
    keepalive_s: Seconds = Field(
        default=10.0,
        description="A client's connection to MySQL is pinged after so long with nothing but hits,"
        " or in a wait for another's fill: MySQL ends those that are idle. It is pinged more often"
        " where the session's wait_timeout, or one of MariaDB's timeouts of idle transactions, is"
        " shorter than three times that; below 2 s such a session has no hits.",
    )
    data_set: str | None = Field(
        default=None,
        pattern=r"^[!-~]{1,64}$",
        description="A name for the data behind `url`, the same on every sqlcache, for servers that"
        " stand in for one another: answers are then shared by it, else by the server's own"
        " identity, and none that one server gave is another's.",
    )
    catalog_refresh_s: Seconds = Field(
        default=30.0, description="How often tables, views, triggers and keys are read again."
    )
    catalog_timeout_s: Seconds = Field(
        default=60.0,
        description="How long one such reading may take; what takes longer is given up, and tried"
        " again. It takes longer with more tables, and on MariaDB while a definition waits for its"
        " table.",
    )
    tls: Literal[
        "as-client", "disabled", "preferred", "required", "verify-ca", "verify-identity"
    ] = Field(
        default="as-client",
        description="When to speak TLS with MySQL. `as-client`: where the client's own connection"
        " has it, if the server offers it. The others are those of MySQL's clients: `disabled`;"
        " `preferred`, if the server offers it; `required`; `verify-ca`, and its certificate must"
        " be signed by tls_ca; `verify-identity`, and must name the host of `url`. sqlcache's own"
        " connection, and those of the Python API, take `as-client` for `preferred`.",
    )
    tls_ca: File | None = Field(
        default=None,
        description="PEM certificates that may sign the server's; none: those the system trusts."
        " With verify-ca and verify-identity.",
    )
    tls_certificate: File | None = Field(
        default=None, description="PEM certificate chain sqlcache shows to the server."
    )
    tls_key: File | None = Field(default=None, description="PEM private key of tls_certificate.")

    @model_validator(mode="after")
    def _password_is_given_once(self) -> Self:
        if self.password_file is not None and self.url.password:
            raise ValueError("expected a password in url, or password_file, not both")
        self.read_password()
        return self

    @model_validator(mode="after")
    def _tls_is_complete(self) -> Self:
        expect_together(self.tls_certificate, self.tls_key)
        if self.tls_ca is not None and not self.tls.startswith("verify-"):
            raise ValueError("expected tls = verify-ca or verify-identity where tls_ca is given")
        return self

    @property
    def host(self) -> str:
        return self.url.host

    @property
    def port(self) -> int:
        return self.url.port

    @property
    def user(self) -> str:
        return self.url.user

    def read_password(self) -> str:
        """As it is now, less a line's end behind it. Raises: ValueError."""
        if self.password_file is None:
            return self.url.password
        try:
            text = self.password_file.read_text(encoding="utf-8")
            return text.removesuffix("\n").removesuffix("\r")
        except OSError as error:
            raise ValueError(f"password_file cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise ValueError("expected UTF-8 in password_file") from None

    @property
    def unix_socket(self) -> str | None:
        return self.url.unix_socket
