"""Compose files, read as Docker Compose reads them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import yaml

ADDRESS = re.compile(r"(?<![\w.-])([a-z][\w-]*|0\.0\.0\.0|127\.0\.0\.1):(\d+)\b")
"""A host and a port, as settings and URLs name them."""

_VARIABLE = re.compile(r"\$(?:\$|\{\w+:-([^}]*)\})")


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """The last stage of one: its instructions, and what follows each."""

    instructions: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, text: str) -> Dockerfile:
        bare = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
        lines = [line.split(None, 1) for line in bare.splitlines() if line]
        last = max(number for number, (name, _) in enumerate(lines) if name == "FROM")
        return cls(tuple((name, rest.strip()) for name, rest in lines[last:]))

    def all(self, name: str) -> list[str]:
        return [rest for each, rest in self.instructions if each == name]

    def words(self, name: str) -> list[str]:
        """Of an instruction in exec form; none without it."""
        return [word for rest in self.all(name) for word in json.loads(rest[rest.index("[") :])]

    @property
    def environment(self) -> dict[str, str]:
        return dict(pair.split("=", 1) for rest in self.all("ENV") for pair in shlex.split(rest))


@dataclass(frozen=True)
class Project:
    """A compose file, where no variable is set."""

    file: Path

    @cached_property
    def content(self) -> dict[str, Any]:
        filled: dict[str, Any] = _filled(yaml.safe_load(self.file.read_text()))
        return filled

    @property
    def services(self) -> dict[str, dict[str, Any]]:
        services: dict[str, dict[str, Any]] = self.content["services"]
        return services

    def start_order(self) -> list[str]:
        """Raises: graphlib.CycleError."""
        return list(TopologicalSorter({n: self.waits_for(n) for n in self.services}).static_order())

    def waits_for(self, service: str) -> dict[str, str]:
        """The services it needs, each with the state it must be in."""
        needed = self.services[service].get("depends_on", {})
        return {name: each["condition"] for name, each in needed.items()}

    def image(self, service: str) -> Dockerfile:
        """What its image is built from; an empty one for those of others."""
        told = self.services[service]
        if inline := told.get("build", {}).get("dockerfile_inline"):
            return Dockerfile.parse(inline)
        if "/sqlcache:" in f"/{told['image']}":
            return Dockerfile.parse((self.file.parent / "Dockerfile").read_text())
        return Dockerfile(())

    def environment(self, service: str) -> dict[str, str]:
        """Its own, and what its image has if it is one of ours."""
        own: dict[str, str] = self.services[service].get("environment", {})
        return self.image(service).environment | own

    def command(self, service: str) -> list[str]:
        image = self.image(service)
        own: list[str] = self.services[service].get("command", [])
        return image.words("ENTRYPOINT") + (own or image.words("CMD"))

    def health_check(self, service: str) -> list[str]:
        """The command; empty if it has none."""
        if "healthcheck" not in self.services[service]:
            return self.image(service).words("HEALTHCHECK")
        kind, *command = self.services[service]["healthcheck"]["test"]
        assert kind == "CMD", "in shell form it would want a shell"
        return list(command)

    def secrets(self, service: str) -> dict[str, Path]:
        """The secrets it is given, by their paths in it."""
        names = self.services[service].get("secrets", ())
        return {f"/run/secrets/{name}": self.secret(name) for name in names}

    def secret(self, name: str) -> Path:
        return self._path(self.content["secrets"][name]["file"])

    def mounts(self, service: str) -> dict[str, Path]:
        """The checkout's files and folders in it, by their paths there; a built image's too."""
        volumes = [v for v in self._volumes(service) if not self._is_named(v[0])]
        return {
            **self.secrets(service),
            **{target: self._path(source) for source, target, *_ in volumes},
            **self._copied(service),
        }

    def scratch(self, service: str) -> list[str]:
        """The folders in it that can be written to."""
        temporary = [each.split(":")[0] for each in self.services[service].get("tmpfs", ())]
        return temporary + [v[1] for v in self._volumes(service) if self._is_named(v[0])]

    def networks(self, service: str) -> set[str]:
        return set(self.services[service].get("networks", ["default"]))

    def reaches(self, service: str) -> set[str]:
        """The services whose names mean something in it."""
        return {n for n in self.services if self.networks(service) & self.networks(n)}

    def addresses(self, service: str) -> list[tuple[str, int]]:
        """Each host and port that its environment names."""
        text = "\n".join(self.environment(service).values())
        return [(host, int(port)) for host, port in ADDRESS.findall(text)]

    def paths(self) -> Iterator[Path]:
        """Everything of the checkout that it names."""
        yield from map(self.secret, self.content.get("secrets", ()))
        for name, service in self.services.items():
            yield from self.mounts(name).values()
            if build := service.get("build"):
                yield self._path(build["context"]) / build.get("dockerfile", "")

    def _copied(self, service: str) -> dict[str, Path]:
        build = self.services[service].get("build", {})
        if "dockerfile_inline" not in build:
            return {}
        copies = [rest.split() for rest in self.image(service).all("COPY")]
        return {folder + source: self._path(build["context"]) / source for source, folder in copies}

    def _volumes(self, service: str) -> list[list[str]]:
        return [each.split(":") for each in self.services[service].get("volumes", ())]

    def _is_named(self, source: str) -> bool:
        return source in self.content.get("volumes", ())

    def _path(self, text: str) -> Path:
        return (self.file.parent / text).resolve()


def _filled(value: Any) -> Any:
    """With its default instead of each variable."""
    if isinstance(value, dict):
        return {key: _filled(each) for key, each in value.items()}
    if isinstance(value, list):
        return list(map(_filled, value))
    return _VARIABLE.sub(lambda found: found[1] or "$", value) if isinstance(value, str) else value
