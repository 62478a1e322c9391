"""A compose file's services without an engine: processes of this machine, with the file's order,
settings, commands and health checks.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from sqlcache.demo.servers import (
    HOST,
    PrivateServer,
    PrivateSqlServer,
    find_program,
    free_port,
    wait_until,
)
from tests.docker.compose import ADDRESS, Project
from tests.docker.image import SECRETS, Image, PrivateContainer

HEALTHY_S = 30.0

# The images of others have these entry points, and listen on every address of their own at these
# ports; here there is one address for all.
_ENTRY_POINTS = {"prometheus": ["/bin/prometheus"]}
_PORTS = {"memcached": 11211, "mysql": 3306, "prometheus": 9090}
_OPTIONS = {
    "memcached": ["-l", HOST, "-p", "{port}", *(["-u", "root"] if os.geteuid() == 0 else [])],
    "prometheus": [f"--web.listen-address={HOST}:{{port}}"],
}
_PACKAGES = {"mysqladmin": "mariadb-client"}

# As MySQL's image does with the files it finds there.
_INIT_FOLDER = "/docker-entrypoint-initdb.d"
_INIT = """
set -eo pipefail
docker_process_sql() { cat; }
for file in "$1"/*; do
    case $file in
    *.sh) if [ -x "$file" ]; then "$file"; else . "$file"; fi ;;
    *.sql) docker_process_sql <"$file" ;;
    esac
done
"""


class Machine:
    """Runs services in a folder, each with what the file gives to it and nothing else.

    - A name and a port are a free port of 127.0.0.1, for those that share a network.
    - What is mounted is a copy, where `edits` are made: patterns, and what is there instead. What
      can be written to is a new folder.
    """

    def __init__(self, project: Project, folder: Path, edits: Mapping[str, str]) -> None:
        self.project = project
        self.folder = folder
        self._edits = edits
        self._ports: defaultdict[tuple[str, int], int] = defaultdict(free_port)
        self._running: dict[str, PrivateServer] = {}

    def start(self, service: str, image: Image | None = None) -> None:
        """Starts it, in a container of the image if there is one, when all that it needs is there;
        returns when it answers.
        """
        self._wait_for_needed(service)
        server = Container(self, service, image) if image else Process(self, service)
        self._running[service] = server
        server.start()

    def start_mysql(self, service: str, server: PrivateSqlServer) -> None:
        """The server instead of the image's, with what the image makes at its first start."""
        self._wait_for_needed(service)
        server.start()
        server.sql(f"DROP USER '{server.user}'@'%', '{server.service_user}'@'%'")
        database = self.project.environment(service)["MYSQL_DATABASE"]
        server.sql(f"CREATE DATABASE {database}")
        server.sql(self._init_statements(service), database)
        self._ports[service, _PORTS["mysql"]] = server.port
        self._running[service] = server

    def stop(self) -> dict[str, int]:
        """Ends all, the last first; returns their exit codes."""
        running = list(self._running.items())
        return {service: server.stop() for service, server in reversed(running)}

    def log_text(self, service: str) -> str:
        return self._running[service].log_text()

    def port(self, service: str, port: int) -> int:
        """Where a service's port is here."""
        return self._ports[service, port]

    def own_port(self, service: str) -> int:
        """That of a service whose image has one by itself."""
        return self.port(service, _PORTS[service])

    def new_ports(self, service: str) -> None:
        """Chooses others for it."""
        for key in [key for key in self._ports if key[0] == service]:
            del self._ports[key]

    def check_health(self, service: str) -> subprocess.CompletedProcess[str]:
        """Runs the health check as an engine does, in the service."""
        server = self._running[service]
        command = self.project.health_check(service)
        if isinstance(server, Container):
            return server.run(*(self.addressed(service, word) for word in command))
        return subprocess.run(
            self.command(service, command),
            env=self.environment(service),
            capture_output=True,
            text=True,
            check=False,
        )

    def is_healthy(self, service: str) -> bool:
        return self.check_health(service).returncode == 0

    def unpack(self, service: str) -> Path:
        """Makes the service's files and folders; returns the folder that stands for its root."""
        root = self._root(service)
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        for target, source in self.project.mounts(service).items():
            copy = Path(f"{root}{target}")
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(source, copy) if source.is_dir() else shutil.copy(source, copy)
        for file in [file for file in root.rglob("*") if file.is_file()]:
            file.write_text(self.translated(service, self.edited(file.read_text())))
        for target in self.project.scratch(service):
            Path(f"{root}{target}").mkdir(parents=True, exist_ok=True)
        return root

    def command(self, service: str, words: list[str]) -> list[str]:
        """A command of the service's image as one of this machine."""
        program, *arguments = words
        name = Path(program).name
        found = {"python": [sys.executable], "sqlcache": [sys.executable, "-m", "sqlcache"]}
        here = found.get(name) or [find_program(name, _PACKAGES.get(name, name))]
        return [*here, *(self.translated(service, word) for word in arguments)]

    def environment(self, service: str) -> dict[str, str]:
        given = self.project.environment(service)
        here = {name: self.translated(service, value) for name, value in given.items()}
        if service == "mysql":  # its clients know no other way to be told of another port
            here["MYSQL_TCP_PORT"] = str(self.own_port(service))
        return here | {"PATH": os.environ.get("PATH", os.defpath)}

    def edited(self, text: str) -> str:
        for pattern, instead in self._edits.items():
            text = re.sub(pattern, instead, text)
        return text

    def addressed(self, service: str, text: str) -> str:
        """The text with each address that means something in the service as it is here."""

        def here(found: re.Match[str]) -> str:
            name = service if found[1] in ("0.0.0.0", HOST) else found[1]
            if name not in self.project.reaches(service):
                return found[0]
            return f"{HOST}:{self.port(name, int(found[2]))}"

        return ADDRESS.sub(here, text)

    def translated(self, service: str, text: str) -> str:
        """The text with the service's addresses and paths as they are here."""
        known = [SECRETS, *self.project.mounts(service), *self.project.scratch(service)]
        longest_first = sorted(map(re.escape, known), reverse=True)
        pattern = rf"(?<![\w.])({'|'.join(longest_first)})(?![\w-])"
        here = rf"{self._root(service)}\1"
        return re.sub(pattern, here, self.addressed(service, text))

    def _root(self, service: str) -> Path:
        return self.folder / service / "root"

    def _wait_for_needed(self, service: str) -> None:
        for name, condition in self.project.waits_for(service).items():
            assert name in self._running, f"{service} is started before {name}"
            if condition == "service_healthy":
                wait_until(partial(self.is_healthy, name), HEALTHY_S, f"the health of {name}")

    def _init_statements(self, service: str) -> str:
        folder = f"{self.unpack(service)}{_INIT_FOLDER}"
        return subprocess.run(
            ["bash", "-c", _INIT, "bash", folder], capture_output=True, text=True, check=True
        ).stdout


class Process(PrivateServer):
    """A service as a process; it is up when it is healthy, or accepts connections."""

    def __init__(self, machine: Machine, service: str) -> None:
        self.name = service
        super().__init__(machine.folder / service)
        self._machine = machine

    def command(self) -> list[str]:
        root = self._machine.unpack(self.name)
        words = _ENTRY_POINTS.get(self.name, []) + self._machine.project.command(self.name)
        options = [each.format(port=self.port) for each in _OPTIONS.get(self.name, [])]
        return ["env", f"--chdir={root}", *self._machine.command(self.name, words), *options]

    def answers(self) -> bool:
        if self._machine.project.health_check(self.name):
            return self._machine.is_healthy(self.name)
        with socket.socket() as probe:
            return probe.connect_ex((self.host, self.port)) == 0

    def _take_ports(self) -> None:
        self._machine.new_ports(self.name)
        if self.name in _PORTS:
            self.port = self._machine.own_port(self.name)

    def _environment(self) -> Mapping[str, str]:
        return self._machine.environment(self.name)


class Container(PrivateContainer):
    """sqlcache's service as a container of the built image."""

    def __init__(self, machine: Machine, service: str, image: Image) -> None:
        super().__init__(machine.folder / service, image, "", ())
        self._machine = machine
        self._service = service
        for path, file in machine.project.secrets(service).items():
            self.secret(Path(path).name, machine.edited(file.read_text()).removesuffix("\n"))

    def _take_ports(self) -> None:
        self._machine.new_ports(self._service)

    def _environment(self) -> Mapping[str, str]:
        given = {**self.image.environment, **self._machine.project.environment(self._service)}
        addressed = partial(self._machine.addressed, self._service)
        return {"HOME": "/"} | {name: addressed(value) for name, value in given.items()}
