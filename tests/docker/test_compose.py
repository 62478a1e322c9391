"""The compose files are what Docker Compose takes, agree with all that they name, and do what they
promise: run by hand, in their order and with their settings, they give a page that was a hit.

sqlcache runs as it is in the checkout, or from the built image where TEST_IMAGE=required,
as `make image-test` has it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml

from sqlcache import __version__
from sqlcache.demo.servers import HOST, PrivateMariaDB, PrivateSqlServer, wait_until
from sqlcache.process.workers import KILL_AFTER_S
from sqlcache.settings import Settings
from sqlcache.settings.sources import load
from tests.docker.compose import ADDRESS, Project
from tests.docker.image import ARCHIVE, CHECKOUT, Image
from tests.docker.machine import Machine
from tests.servers import MySQLMissing, PrivateMySQL

DOCKER = CHECKOUT / "docker"
WHOLE, MINIMAL = Project(DOCKER / "compose.yaml"), Project(DOCKER / "compose.minimal.yaml")
BY_ITSELF = {"grafana": 3000, "memcached": 11211, "mysql": 3306, "prometheus": 9090}
SOON_S = 20.0

EDITS = {
    r"(scrape_interval|evaluation_interval|scrape_timeout): \w+": r"\1: 1s",
    r"sample-of-(\w+)": r"it's a \\\1",  # a password that ends a string of SQL
}

both = pytest.mark.parametrize("project", [WHOLE, MINIMAL], ids=lambda project: project.file.name)
each_service = pytest.mark.parametrize("service", WHOLE.services)


def settings_of(project: Project) -> Settings:
    """What its sqlcache is told. Every variable must be a setting."""
    given = project.environment("sqlcache")
    for path, file in project.secrets("sqlcache").items():
        given = {name: value.replace(path, str(file)) for name, value in given.items()}
    settings, sources, *_ = load(environment=given)
    assert {name for name in given if name.startswith("SQLCACHE_")} == set(sources.values())
    return settings


def listens(project: Project, service: str) -> set[int]:
    """The ports of a service that others can connect to."""
    if service in BY_ITSELF:
        return {BY_ITSELF[service]}
    return {port for host, port in project.addresses(service) if host == "0.0.0.0"}


def mounted(service: str, path: str) -> Any:
    """A YAML file, as the service finds it."""
    (folder,) = (at for at in WHOLE.mounts(service) if Path(path).is_relative_to(at))
    return yaml.safe_load(
        (WHOLE.mounts(service)[folder] / Path(path).relative_to(folder)).read_text()
    )


def seconds(text: str) -> int:
    return int(text[:-1]) * {"s": 1, "m": 60}[text[-1]]


def accounts(text: str) -> set[str]:
    """The statements in it that make accounts and give rights, without the passwords."""
    found = re.findall(r"^\s*((?:CREATE USER|GRANT)\b[^;]*);", text, re.MULTILINE)
    return {re.sub(r"'[^'%]*'$", "'...'", statement) for statement in found}


@both
def test_docker_compose_takes_it(project: Project) -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*check, project.file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@both
def test_everything_that_it_names_is_there(project: Project) -> None:
    assert [str(path) for path in project.paths() if not path.exists()] == []
    for name, service in project.services.items():
        assert set(service.get("secrets", ())) <= set(project.content["secrets"])
        assert project.networks(name) <= {*project.content["networks"], "default"}
        assert set(project.waits_for(name)) <= set(project.services)


@both
def test_what_sqlcache_is_told_are_settings(project: Project) -> None:
    settings = settings_of(project)
    assert settings.upstream.read_password()
    assert settings.proxy.listen.host == "0.0.0.0"


@both
def test_sqlcache_may_drain_before_it_is_killed(project: Project) -> None:
    patience_s = seconds(project.services["sqlcache"]["stop_grace_period"])
    assert patience_s > settings_of(project).proxy.drain_timeout_s + KILL_AFTER_S


@both
def test_every_image_is_of_a_version(project: Project) -> None:
    named = [service["image"] for service in project.services.values() if "image" in service]
    named += [project.image(name).all("FROM")[0] for name in project.services if name == "app"]
    assert [image for image in named if not re.search(r":v?\d+\.\d+", image)] == []
    assert project.services["sqlcache"]["image"].endswith(f"sqlcache:{__version__}")


def test_both_images_are_built_from_what_the_dockerfile_names() -> None:
    (base,) = re.findall(r"^ARG BASE=(.*)$", (DOCKER / "Dockerfile").read_text(), re.MULTILINE)
    assert WHOLE.services["sqlcache"]["build"]["args"] == {"BASE": base}
    assert WHOLE.image("app").all("FROM") == [base]


@both
def test_each_address_is_one_where_somebody_listens(project: Project) -> None:
    outside = set()
    for service in project.services:
        for host, port in project.addresses(service):
            if host in project.services:
                assert host in project.reaches(service), f"{service} cannot reach {host}"
                assert port in listens(project, host), f"nobody listens at {host}:{port}"
            elif host not in ("0.0.0.0", HOST):
                outside.add(host)
    assert outside == ({"mysql"} if project is MINIMAL else set())


@each_service
def test_a_port_is_published_to_this_machine_alone(service: str) -> None:
    for published in WHOLE.services[service].get("ports", ()):
        host, outer, inner = published.split(":")
        assert (host, outer) == (HOST, inner)
        assert int(inner) in listens(WHOLE, service)


def test_prometheus_and_grafana_ask_where_somebody_answers() -> None:
    admin = settings_of(WHOLE).admin.listen
    assert admin is not None
    (config,) = (w for w in WHOLE.command("prometheus") if w.startswith("--config.file="))
    (job,) = mounted("prometheus", config.partition("=")[2])["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"sqlcache:{admin.port}"]}]
    assert "sqlcache" in WHOLE.reaches("prometheus")
    sources = "/etc/grafana/provisioning/datasources/prometheus.yaml"
    (source,) = mounted("grafana", sources)["datasources"]
    assert ADDRESS.findall(source["url"]) == [("prometheus", str(BY_ITSELF["prometheus"]))]
    assert "prometheus" in WHOLE.reaches("grafana")


def test_each_starts_when_what_it_needs_is_well() -> None:
    assert WHOLE.waits_for("app") == {"sqlcache": "service_healthy"}
    assert WHOLE.waits_for("sqlcache") == {
        "mysql": "service_healthy",
        "memcached": "service_started",
    }
    assert set(WHOLE.start_order()) == set(WHOLE.services), "there is an order"
    for name in WHOLE.services:
        for needed, state in WHOLE.waits_for(name).items():
            assert state == "service_started" or WHOLE.health_check(needed)


def test_the_init_script_gives_sqlcache_the_rights_that_the_readme_names() -> None:
    script = accounts((DOCKER / "mysql" / "1-accounts.sh").read_text())
    readme = accounts((CHECKOUT / "README.md").read_text())
    assert len(readme) == 3
    assert readme < script


def test_the_init_script_is_sourced_not_run() -> None:
    """Only so it has the image's functions."""
    script = DOCKER / "mysql" / "1-accounts.sh"
    assert not os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", script], check=True)


@both
def test_a_service_may_do_its_work_and_nothing_else(project: Project) -> None:
    for told in project.services.values():
        assert told["read_only"] is True
        assert told["cap_drop"] == ["ALL"]
        assert "cap_add" not in told
        assert told["security_opt"] == ["no-new-privileges:true"]
        assert told["restart"] == "unless-stopped"


@each_service
def test_a_service_has_its_share_of_the_machine(service: str) -> None:
    told = WHOLE.services[service]
    assert told["mem_limit"]
    assert told["pids_limit"]


def test_all_that_is_open_to_this_machine_is_named_at_the_top() -> None:
    head = WHOLE.file.read_text().partition("\nname:")[0]
    opened = {
        each.rpartition(":")[0]
        for told in WHOLE.services.values()
        for each in told.get("ports", ())
    }
    assert opened == set(re.findall(r"127\.0\.0\.1:\d+", head))


def test_the_app_cannot_go_round_sqlcache() -> None:
    assert WHOLE.reaches("app") == {"app", "sqlcache"}
    assert WHOLE.reaches("memcached") == {"memcached", "mysql", "sqlcache"}
    assert MINIMAL.reaches("memcached") == {"memcached", "sqlcache"}


def test_no_password_is_in_the_environment() -> None:
    secrets = {
        file.read_text().strip() for name in WHOLE.services for file in WHOLE.secrets(name).values()
    }
    assert len(secrets) == 3
    assert all(secret.startswith("sample-of-") for secret in secrets), "everybody can read these"
    assert not any(secret in WHOLE.file.read_text() for secret in secrets)


def test_grafana_lets_everybody_look_and_nobody_in() -> None:
    told = WHOLE.environment("grafana")
    assert told["GF_AUTH_ANONYMOUS_ENABLED"] == "true"
    assert "GF_AUTH_ANONYMOUS_ORG_ROLE" not in told, "it is a viewer's by itself"
    assert told["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"


@pytest.fixture
def sql_server(tmp_path: Path) -> PrivateSqlServer:
    """One with no accounts of other tests, not started: MySQL where the machine has it."""
    try:
        return PrivateMySQL(tmp_path / "mysqld")
    except MySQLMissing:
        return PrivateMariaDB(tmp_path / "mariadbd")


@pytest.fixture
def image(tmp_path: Path) -> Image | None:
    """The built one, where the tests are about that."""
    if os.environ.get("TEST_IMAGE") != "required":
        return None
    return Image.unpack(ARCHIVE, tmp_path / "image")


@pytest.fixture
def machine(tmp_path: Path, sql_server: PrivateSqlServer, image: Image | None) -> Iterator[Machine]:
    """With all services of the compose file that this machine has programs for, in its order."""
    machine = Machine(WHOLE, tmp_path / "compose", EDITS)
    try:
        for service in WHOLE.start_order():
            if service == "mysql":
                machine.start_mysql(service, sql_server)
            elif service != "grafana":
                machine.start(service, image if service == "sqlcache" else None)
        yield machine
    finally:
        machine.stop()


class Browser:
    """Looks at what is served at the ports of the services."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def get(self, address: str, path: str, form: dict[str, str] | None = None) -> str:
        """A page; of a form that was sent, the one that it leads to. Raises: OSError."""
        service, port = address.split(":")
        url = f"http://{HOST}:{self._machine.port(service, int(port))}{path}"
        body = None if form is None else urlencode(form).encode()
        with urllib.request.urlopen(url, body, timeout=20) as answer:
            text: str = answer.read().decode()
        return text.partition("<footer>")[0]  # which says how long it took

    def hits(self) -> float:
        metrics = self.get("sqlcache:9307", "/metrics")
        (hits,) = re.findall(r"^sqlcache_hits_total (\S+)$", metrics, re.MULTILINE)
        return float(hits)

    def is_a_hit(self, page: str) -> bool:
        """Whether both things that a page of the app asks for were."""
        before = self.hits()
        self.get("app:8000", page)
        return self.hits() == before + 2

    def prometheus(self, path: str, **query: str) -> Any:
        """What its API answers."""
        return json.loads(self.get("prometheus:9090", f"/api/v1/{path}?{urlencode(query)}"))["data"]

    def prometheus_sees_a_hit(self) -> bool:
        found = self.prometheus("query", query='sqlcache_hits_total{job="sqlcache"}')["result"]
        return any(float(series["value"][1]) > 0 for series in found)

    def prometheus_has_the_rules(self) -> bool:
        """Whether it has evaluated all of them without an error."""
        groups = self.prometheus("rules")["groups"]
        rules = {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}
        return "SqlcacheDown" in rules and set(rules.values()) == {"ok"}


def test_run_by_hand_it_gives_a_page_that_is_a_hit_and_prometheus_sees_it(machine: Machine) -> None:
    browser = Browser(machine)
    shelf, product = "/categories/3", "/products/100"
    page = browser.get("app:8000", shelf)
    wait_until(lambda: browser.is_a_hit(shelf), SOON_S, "a hit")
    assert browser.get("app:8000", shelf) == page

    assert "1234.50" not in page
    changed = browser.get("app:8000", product, {"price": "1234.50"})
    assert "1234.50" in changed
    assert "1234.50" in browser.get("app:8000", shelf)

    wait_until(browser.prometheus_sees_a_hit, SOON_S, "a hit that Prometheus knows of")
    wait_until(browser.prometheus_has_the_rules, SOON_S, "the rules")
    (target,) = browser.prometheus("targets")["activeTargets"]
    assert target["health"] == "up", target["lastError"]

    for service in ("mysql", "sqlcache", "app"):
        done = machine.check_health(service)
        assert done.returncode == 0, done.stdout + done.stderr
    assert machine.check_health("sqlcache").stdout == "ready\n"

    exit_codes = machine.stop()
    assert (exit_codes["app"], exit_codes["sqlcache"]) == (0, 0)
    assert "Traceback" not in machine.log_text("app") + machine.log_text("sqlcache")
