"""TLS by the settings: which files are of use."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from sqlcache.errors import ConfigError
from sqlcache.settings.sources import from_arguments
from sqlcache.tls import client_tls, upstream_tls
from tests.certificates import self_signed

REQUIRED = {"upstream.url": "mysql://cat@127.0.0.1", "memcached.nodes": "127.0.0.1:1"}


@pytest.mark.parametrize("section", ["proxy", "upstream"])
@pytest.mark.parametrize("form", ["traditional", "PKCS #8"])
def test_a_key_with_a_passphrase_is_refused_and_nobody_is_asked_for_it(
    tmp_path: Path, section: str, form: str
) -> None:
    made = self_signed(tmp_path, "server")
    key = tmp_path / "locked.key"
    convert = ["pkcs8", "-topk8"] if form == "PKCS #8" else ["rsa", "-traditional", "-aes256"]
    command = [
        "openssl",
        *convert,
        "-in",
        str(made.key),
        "-out",
        str(key),
        "-passout",
        "pass:secret",
    ]
    subprocess.run(command, check=True, capture_output=True)
    files = {f"{section}.tls_certificate": str(made.certificate), f"{section}.tls_key": str(key)}
    settings = from_arguments({**REQUIRED, **files})
    with pytest.raises(ConfigError) as refused:
        client_tls(settings) if section == "proxy" else upstream_tls(settings)
    expected = f"{section}.tls_key = {key}: expected a private key without a passphrase"
    assert str(refused.value) == expected
