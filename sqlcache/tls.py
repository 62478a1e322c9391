"""TLS as the settings ask for it: with clients, and with MySQL."""

import ssl
from pathlib import Path

from sqlcache.errors import ConfigError
from sqlcache.proxy.login import ClientTls, UpstreamTls
from sqlcache.settings import Settings


def client_tls(settings: Settings) -> ClientTls:
    """What clients are offered. Raises: ConfigError where a file is of no use."""
    proxy = settings.proxy
    if proxy.tls_certificate is None or proxy.tls_key is None:
        return ClientTls()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load_certificate(context, "proxy", proxy.tls_certificate, proxy.tls_key)
    return ClientTls(context, proxy.tls_required)


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
    try:
        context.load_cert_chain(certificate, key)
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
