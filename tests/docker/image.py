"""The built image, and containers of it: run as an engine runs them, by util-linux and the kernel.

A container has process and mount namespaces of its own, a root that is read-only, no capabilities,
the environment, user and program that the image names, and the machine's network. Wants root.
"""

from __future__ import annotations

import filecmp
import json
import os
import shlex
import signal
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlcache.demo.servers import HOST, PrivateSqlcache, find_program

CHECKOUT = Path(__file__).parents[2]
ARCHIVE = CHECKOUT / ".image" / "sqlcache.tar"
SECRETS = "/run/secrets"

_MOUNT_POINTS = ("proc", "sys", "dev", SECRETS.lstrip("/"))
_OF_THE_NETWORK = ("etc/hosts", "etc/resolv.conf")


class ImageMissing(Exception):
    """There is no image of this checkout, or none can be run here: says what to do."""


@dataclass(frozen=True, slots=True)
class Image:
    """An unpacked image: its files, and what it says of itself."""

    root: Path
    description: Mapping[str, Any]

    @classmethod
    def unpack(cls, archive: Path, folder: Path) -> Image:
        """Raises: ImageMissing."""
        if not archive.exists():
            raise ImageMissing("there is no image to test: make image")
        if os.geteuid() != 0:
            raise ImageMissing("containers are run here by root only: sudo make image-test")
        root = folder / "root"
        with tarfile.open(archive) as outer:
            (manifest,) = json.loads(_member(outer, "manifest.json"))
            description = json.loads(_member(outer, manifest["Config"]))
            for layer in manifest["Layers"]:
                with tarfile.open(fileobj=outer.extractfile(layer)) as inner:
                    inner.extractall(root, filter="fully_trusted")
        image = cls(root, description)
        if not image.is_of_this_checkout():
            raise ImageMissing("the image is not of this checkout as it is now: make image")
        return image

    @property
    def config(self) -> Mapping[str, Any]:
        config: Mapping[str, Any] = self.description["config"]
        return config

    @property
    def environment(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.config["Env"])

    @property
    def site_packages(self) -> Path:
        (found,) = self.root.glob("opt/sqlcache/lib/python3.*/site-packages")
        return found

    def is_of_this_checkout(self) -> bool:
        """Whether its sqlcache is the one beside these tests, file by file."""
        ours, theirs = CHECKOUT / "sqlcache", self.site_packages / "sqlcache"
        names = [_sources(package) for package in (ours, theirs)]
        return names[0] == names[1] and not any(
            filecmp.cmpfiles(ours, theirs, names[0], shallow=False)[1:]
        )


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file is not None, f"{name} is no file"
    return file.read()


def _sources(package: Path) -> list[str]:
    files = [*package.rglob("*.py"), *package.rglob("*.pyx")]
    return sorted(str(file.relative_to(package)) for file in files)


class PrivateContainer(PrivateSqlcache):
    """A container of the image that serves on ports of its own.

    Its settings are given in its environment, the service account's password as a secret in a file.
    `user` is a UID:GID to run it as instead of the image's own.
    """

    def __init__(
        self,
        folder: Path,
        image: Image,
        upstream_url: str,
        nodes: tuple[str, ...],
        user: str | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(folder, upstream_url, nodes, **settings)
        self.image = image
        named: str = user or image.config["User"]
        self.user, self.group = named.split(":")
        self.secrets = folder / "secrets"
        self.secrets.mkdir()

    def secret(self, name: str, text: str) -> None:
        """Puts a file under `SECRETS`."""
        (self.secrets / name).write_text(text + "\n")

    def command(self) -> list[str]:
        root = self.image.root
        for folder in _MOUNT_POINTS:
            (root / folder).mkdir(parents=True, exist_ok=True)
        for file in _OF_THE_NETWORK:
            (root / file).touch()
        inside = shlex.quote(str(root))
        lines = [
            f"--bind {inside} {inside}",
            f"-o remount,bind,ro {inside}",
            f"-t proc proc {inside}/proc",
            f"--rbind /dev {inside}/dev",
            f"--rbind /sys {inside}/sys",
            f"--bind {shlex.quote(str(self.secrets))} {inside}{SECRETS}",
            *(f"--bind /{file} {inside}/{file}" for file in _OF_THE_NETWORK),
        ]
        mounts = "".join(f"{find_program('mount', 'mount')} {line}\n" for line in lines)
        unshare = find_program("unshare", "util-linux")
        return [
            *(unshare, "--mount", "--pid", "--fork", "--kill-child", "--"),
            *("/bin/sh", "-ec", f'{mounts}exec "$@"', "sh"),
            *(find_program("setpriv", "util-linux"), "--no-new-privs", "--inh-caps=-all"),
            # What it takes to become the user is lost with that.
            "--bounding-set=-all,+setuid,+setgid,+sys_chroot",
            *(unshare, f"--root={root}", f"--wd={self.image.config['WorkingDir']}"),
            *(f"--setgid={self.group}", f"--setuid={self.user}", "--"),
            *self.image.config["Entrypoint"],
            *self.image.config["Cmd"],
        ]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Runs another program in it, as the same user."""
        return subprocess.run(
            self._entered(command),
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def run_at(self, terminal: int, *command: str) -> subprocess.Popen[bytes]:
        """The same, not waited for, at a terminal."""
        return subprocess.Popen(
            self._entered(command),
            env={**self._environment(), "TERM": "xterm", "COLUMNS": "160", "LINES": "40"},
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )

    def _entered(self, command: Sequence[str]) -> list[str]:
        enter = [find_program("nsenter", "util-linux"), f"--target={self.pid}"]
        enter += ["--mount", "--pid", "--root", "--wd", f"--setgid={self.group}"]
        return [*enter, f"--setuid={self.user}", "--", *command]

    def check_health(self) -> subprocess.CompletedProcess[str]:
        """Runs the health check that the image names."""
        kind, *command = self.image.config["Healthcheck"]["Test"]
        assert kind == "CMD", "in shell form it would want a shell"
        return self.run(*command)

    @property
    def pid(self) -> int:
        """Of its process 1, as the machine counts."""
        outer = super().pid
        children = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()
        return int(children[0])

    def stop(self) -> int:
        """As an engine does it: a signal to process 1."""
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self.signal(signal.SIGTERM)
        exit_code = self._process.wait(60)
        self._process = None
        return exit_code

    def _environment(self) -> Mapping[str, str]:
        settings = {f"SQLCACHE_{path.upper()}": str(value) for path, value in self.settings.items()}
        return {
            **self.image.environment,
            "HOME": "/",
            "SQLCACHE_LISTEN": f"0.0.0.0:{self.port}",
            "SQLCACHE_ADMIN": f"{HOST}:{self.admin_port}",
            "SQLCACHE_UPSTREAM": self.upstream_url,
            "SQLCACHE_MEMCACHED": ",".join(self.nodes),
            **settings,
        }
