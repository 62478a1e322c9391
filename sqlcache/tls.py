"""TLS as the settings ask for it: with clients, and with MySQL."""

import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

from sqlcache.errors import ConfigError
from sqlcache.settings import Settings

TlsMode = Literal["as-client", "disabled", "preferred", "required", "verify-ca", "verify-identity"]


@dataclass(frozen=True, slots=True)
class ClientTls:
    """TLS with clients: `context` is None where it is not offered.

    `inside`: the client is of this very process, so what it sends is secure without.
    """

    context: ssl.SSLContext | None = None
    required: bool = False
    inside: bool = False


@dataclass(frozen=True, slots=True)
class UpstreamTls:
    """TLS with the server; see docs/settings.md for the modes. `context` knows what to verify."""

    mode: TlsMode
    context: ssl.SSLContext
    server_hostname: str
    by_socket: bool

    @property
    def required(self) -> bool:
        """Whether there is no login without it."""
        return self.mode in ("required", "verify-ca", "verify-identity")

    def wanted(self, *, client_has_it: bool) -> bool:
        """Whether to speak it if the server can. What goes by a socket no one else can read."""
        if self.mode == "as-client":
            return client_has_it
        return self.required or (self.mode == "preferred" and not self.by_socket)


def client_tls(settings: Settings, own: bytes | None = None) -> ClientTls:
    """What clients are offered: by the certificate of the settings, or by sqlcache's `own`, a key
    and a certificate in PEM. Raises: ConfigError where a file is of no use."""
    proxy = settings.proxy
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if proxy.tls_certificate is not None and proxy.tls_key is not None:
        _load_certificate(context, "proxy", proxy.tls_certificate, proxy.tls_key)
    elif own is not None:
        _load_own(context, own)
    else:
        return ClientTls()
    return ClientTls(context, proxy.tls_required)


def _load_own(context: ssl.SSLContext, own: bytes) -> None:
    """Python reads certificates from files alone: this one is in memory, and nobody else's."""
    with os.fdopen(os.memfd_create("sqlcache-certificate", os.MFD_CLOEXEC), "wb") as file:
        file.write(own)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")


def upstream_tls(settings: Settings) -> UpstreamTls:
    """What is spoken with MySQL. Raises: ConfigError where a file is of no use."""
    upstream = settings.upstream
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = upstream.tls == "verify-identity"
    if not upstream.tls.startswith("verify-"):
        context.verify_mode = ssl.CERT_NONE
    elif upstream.tls_ca is None:
        context.load_default_certs()
    else:
        _load_authorities(context, upstream.tls_ca)
    if upstream.tls_certificate is not None and upstream.tls_key is not None:
        _load_certificate(context, "upstream", upstream.tls_certificate, upstream.tls_key)
    return UpstreamTls(upstream.tls, context, upstream.host, upstream.unix_socket is not None)


def _load_certificate(context: ssl.SSLContext, section: str, certificate: Path, key: Path) -> None:
    def refuse() -> NoReturn:
        """Else OpenSSL would ask at the terminal, and hold up all clients meanwhile."""
        raise ConfigError(f"{section}.tls_key = {key}: expected a private key without a passphrase")

    try:
        context.load_cert_chain(certificate, key, refuse)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(
            f"{section}.tls_certificate = {certificate}, {section}.tls_key = {key}:"
            f" expected a PEM certificate and its private key: {error}"
        ) from None


def _load_authorities(context: ssl.SSLContext, authorities: Path) -> None:
    try:
        context.load_verify_locations(authorities)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(
            f"upstream.tls_ca = {authorities}: expected PEM certificates: {error}"
        ) from None
