"""Certificates for a test's servers, made by openssl."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Certificate:
    """PEM files: a certificate and its private key."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority of a test's own; `certificate` is what trusts it."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._made = self_signed(folder, name, _NEW_EC_KEY)
        self.certificate = self._made.certificate

    def issue(self, name: str, *hosts: str) -> Certificate:
        """A certificate for these, such as `DNS:localhost` or `IP:127.0.0.1`."""
        key, request = self._folder / f"{name}.key", self._folder / f"{name}.csr"
        certificate, extensions = self._folder / f"{name}.pem", self._folder / f"{name}.ext"
        names = f"subjectAltName = {','.join(hosts)}\n" if hosts else ""
        extensions.write_text(
            f"{names}authorityKeyIdentifier = keyid\nsubjectKeyIdentifier = hash\n"
        )
        _openssl("req", "-new", *_NEW_EC_KEY, key, "-subj", f"/CN={name}", "-out", request)
        _openssl(
            *("x509", "-req", "-in", request, "-days", "2", "-out", certificate),
            *("-CA", self.certificate, "-CAkey", self._made.key, "-CAcreateserial"),
            *("-extfile", extensions),
        )
        return Certificate(certificate, key)


_NEW_RSA_KEY = ("-newkey", "rsa:2048", "-nodes", "-keyout")
# Made thirty times as fast, for all that hangs on who has signed what.
_NEW_EC_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout")


def self_signed(folder: Path, name: str, new_key: tuple[str, ...] = _NEW_RSA_KEY) -> Certificate:
    """One that only who has it trusts."""
    folder.mkdir(parents=True, exist_ok=True)
    key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
    subject = ("-subj", f"/CN={name}", "-days", "2")
    # Without a use Python takes it for no authority, from 3.13 on.
    use = ("-addext", "keyUsage = critical, keyCertSign, digitalSignature, keyEncipherment")
    _openssl("req", "-x509", *new_key, key, *subject, *use, "-out", certificate)
    return Certificate(certificate, key)


def _openssl(*arguments: object) -> None:
    command = ["openssl", *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)
