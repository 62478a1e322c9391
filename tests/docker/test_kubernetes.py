"""The manifests are what Kubernetes takes, and agree with one another and with the settings."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from sqlcache import __version__
from sqlcache.demo.servers import PrivateMariaDB, PrivateMemcached, PrivateSqlcache
from sqlcache.errors import ConfigError
from sqlcache.process.workers import KILL_AFTER_S
from sqlcache.settings import Settings
from sqlcache.settings.sources import load
from tests import web

FOLDER = Path(__file__).parents[2] / "docker" / "kubernetes"
OLDEST = "1.30"
SHARED = ("settings.yaml", "memcached.yaml")
MANIFESTS = (*SHARED, "service.yaml", "sidecar.yaml")

MIB = 1 << 20
IDLE_BYTES = 80 * MIB
SESSION_BYTES = 60_000
"""An idle one takes some 13,000; the rest is for what is in flight."""
MEMCACHED_OVERHEAD = 1.2
"""Of what `-m` says: connections and the hash table."""
SPARE_S = 5
TO_FILL_IN = {"admin-token": "a-token-of-somebody"}
"""What the samples leave empty."""

Object = dict[str, Any]


class Strict(yaml.SafeLoader):
    """Refuses a key that stands twice, as kubectl does."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key) for key, _ in node.value]
        assert len(set(keys)) == len(keys), f"a key twice in {keys}{node.start_mark}"
        return super().construct_mapping(node, deep)


@cache
def read(file: str) -> tuple[Object, ...]:
    return tuple(yaml.load_all((FOLDER / file).read_text(), Strict))


def objects(*files: str) -> list[Object]:
    return [each for file in files for each in read(file)]


def find(kind: str, name: str) -> Object:
    named = [o for o in objects(*MANIFESTS) if (o["kind"], o["metadata"]["name"]) == (kind, name)]
    (found,) = named
    return found


def of_kind(kind: str) -> list[Object]:
    return [o for o in objects(*MANIFESTS) if o["kind"] == kind]


@dataclass(frozen=True)
class Pod:
    """What a Deployment or a StatefulSet makes its pods from."""

    owner: Object

    @property
    def name(self) -> str:
        return str(self.owner["metadata"]["name"])

    @property
    def labels(self) -> dict[str, str]:
        labels: dict[str, str] = self.owner["spec"]["template"]["metadata"]["labels"]
        return labels

    @property
    def spec(self) -> Object:
        spec: Object = self.owner["spec"]["template"]["spec"]
        return spec

    def containers(self) -> list[Object]:
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]

    def container(self, name: str) -> Object:
        (found,) = [each for each in self.containers() if each["name"] == name]
        return found

    def files(self, volume: str) -> dict[str, str]:
        """What is in a volume, by the files' names."""
        (found,) = [each for each in self.spec["volumes"] if each["name"] == volume]
        if "secret" in found:
            held: dict[str, str] = find("Secret", found["secret"]["secretName"])["stringData"]
        else:
            held = find("ConfigMap", found["configMap"]["name"])["data"]
        return held


def pods() -> list[Pod]:
    return [Pod(owner) for kind in ("Deployment", "StatefulSet") for owner in of_kind(kind)]


def all_containers() -> Iterator[tuple[Pod, Object]]:
    for pod in pods():
        for container in pod.containers():
            yield pod, container


def selects(selector: Object, labels: dict[str, str]) -> bool:
    assert set(selector) <= {"matchLabels", "matchExpressions"}
    for each in selector.get("matchExpressions", []):
        assert each["operator"] == "Exists"
        if each["key"] not in labels:
            return False
    return bool(selector.get("matchLabels", {}).items() <= labels.items())


def selected(selector: Object) -> list[str]:
    """The workloads whose pods a selector means."""
    return [pod.name for pod in pods() if selects(selector, pod.labels)]


def ports(container: Object) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container["ports"]}


def in_bytes(quantity: str) -> int:
    number, unit = quantity[:-2], quantity[-2:]
    return int(number) * {"Mi": MIB, "Gi": 1024 * MIB}[unit]


@dataclass(frozen=True)
class Sqlcache:
    """A container that runs sqlcache, and the settings it has there."""

    pod: Pod
    container: Object
    settings: Settings
    environment: dict[str, str]

    @property
    def memory_bytes(self) -> int:
        return in_bytes(self.container["resources"]["limits"]["memory"])


@pytest.fixture(params=["app", "sqlcache"])
def sqlcache(request: pytest.FixtureRequest, tmp_path: Path) -> Sqlcache:
    """The sidecar, and the one that is a service. Its files are below a folder of the test."""
    pod = Pod(find("Deployment", request.param))
    container = pod.container("sqlcache")
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}

    def moved(text: str) -> str:
        for path in mounts:
            text = text.replace(path, f"{tmp_path}{path}")
        return text

    for path, mount in mounts.items():
        assert "subPath" not in mount, "the kubelet would never bring a new password"
        folder = Path(moved(path))
        folder.mkdir(parents=True)
        for name, text in pod.files(mount["name"]).items():
            (folder / name).write_text(moved(text) or TO_FILL_IN[name])
    environment = {each["name"]: moved(each["value"]) for each in container["env"]}
    settings, sources, *_ = load(environment=environment)
    assert set(environment) - set(sources.values()) == {"SQLCACHE_CONFIG"}
    # The image gives these in its environment, which wins over the file.
    by_environment = {path for path, source in sources.items() if source in environment}
    assert by_environment == {"proxy.listen", "admin.listen"}
    in_file = load(Path(environment["SQLCACHE_CONFIG"])).sources
    assert not by_environment & set(in_file), "what the file says of these is not heard"
    return Sqlcache(pod, container, settings, environment)


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
@pytest.mark.parametrize("file", MANIFESTS)
def test_kubernetes_takes_every_line(file: str, version: str) -> None:
    for each in objects(file):
        kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.parametrize("alternative", ["service.yaml", "sidecar.yaml"])
def test_an_object_stands_once(alternative: str) -> None:
    applied = objects(*SHARED, alternative)
    names = [(each["kind"], each["metadata"]["name"]) for each in applied]
    assert len(set(names)) == len(names)


def test_the_kustomization_is_everything_but_the_sidecar() -> None:
    assert objects("kustomization.yaml") == [
        {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [file for file in MANIFESTS if file != "sidecar.yaml"],
        }
    ]
    assert {file.name for file in FOLDER.iterdir()} == {*MANIFESTS, "kustomization.yaml"}


def test_the_images_are_of_this_version() -> None:
    images = {c["image"] for _, c in all_containers() if c["name"] == "sqlcache"}
    assert images == {f"registry.example.com/sqlcache:{__version__}"}


def test_every_container_may_run_in_a_restricted_namespace() -> None:
    for pod, container in all_containers():
        own = container["securityContext"]
        context = pod.spec.get("securityContext", {}) | own
        assert context["runAsNonRoot"] is True
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert own["allowPrivilegeEscalation"] is False
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert context.get("runAsUser") != 0
        assert not own.get("privileged")
        assert not any("hostPort" in port for port in container.get("ports", []))
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod.spec)
        kinds = {kind for volume in pod.spec.get("volumes", []) for kind in volume} - {"name"}
        assert kinds <= {"configMap", "secret"}


def test_what_is_ours_writes_to_no_disk_and_knows_no_cluster() -> None:
    for pod, container in all_containers():
        assert pod.spec["automountServiceAccountToken"] is False
        assert pod.spec["enableServiceLinks"] is False
        if container["name"] != "app":
            assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_every_container_says_what_memory_it_needs() -> None:
    for _, container in all_containers():
        requests, limits = (container["resources"][each] for each in ("requests", "limits"))
        assert requests["cpu"]
        assert in_bytes(requests["memory"]) <= in_bytes(limits["memory"])


def test_every_selector_means_the_pods_it_is_for() -> None:
    for pod in pods():
        selector = pod.owner["spec"]["selector"]
        assert selected(selector) == [pod.name]
        for spread in pod.spec.get("topologySpreadConstraints", []):
            assert spread["labelSelector"] == selector
    for service in of_kind("Service"):
        assert selected({"matchLabels": service["spec"]["selector"]}) == [
            service["metadata"]["name"]
        ]


def test_a_drain_of_machines_leaves_a_pod_of_each() -> None:
    budgets = of_kind("PodDisruptionBudget")
    assert {budget["metadata"]["name"] for budget in budgets} == {"sqlcache", "sqlcache-memcached"}
    for budget in budgets:
        (name,) = selected(budget["spec"]["selector"])
        assert name == budget["metadata"]["name"]
        (pod,) = [each for each in pods() if each.name == name]
        assert budget["spec"]["maxUnavailable"] < pod.owner["spec"]["replicas"]
        assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_a_roll_out_takes_no_pod_before_it_has_another() -> None:
    for deployment in of_kind("Deployment"):
        assert deployment["spec"]["strategy"] == {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
        }


def test_probes_ask_the_admin_door_and_only_readiness_asks_for_mysql(sqlcache: Sqlcache) -> None:
    listen = sqlcache.settings.admin.listen
    assert listen is not None
    assert (listen.host, listen.port) == ("0.0.0.0", ports(sqlcache.container)["admin"])
    pages = {"startupProbe": "/live", "livenessProbe": "/live", "readinessProbe": "/ready"}
    for probe, page in pages.items():
        assert sqlcache.container[probe]["httpGet"] == {"path": page, "port": "admin"}
    readiness = sqlcache.container["readinessProbe"]
    assert readiness["timeoutSeconds"] > sqlcache.settings.upstream.connect_timeout_s


def test_prometheus_finds_the_metrics(sqlcache: Sqlcache) -> None:
    listen = sqlcache.settings.admin.listen
    assert listen is not None
    assert sqlcache.pod.owner["spec"]["template"]["metadata"]["annotations"] == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(listen.port),
        "prometheus.io/path": "/metrics",
    }


class Served(PrivateSqlcache):
    """A pod's sqlcache with its settings, at ports and before servers of the test."""

    environment: dict[str, str]

    def command(self) -> list[str]:
        return [sys.executable, "-m", "sqlcache", "serve"]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """A command in the pod, as `kubectl exec` runs it."""
        return subprocess.run(
            [sys.executable, "-m", "sqlcache", *command],
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def _environment(self) -> dict[str, str]:
        own = {
            "SQLCACHE_LISTEN": self.address,
            "SQLCACHE_ADMIN": f"0.0.0.0:{self.admin_port}",
            "SQLCACHE_UPSTREAM": self.upstream_url,
            "SQLCACHE_MEMCACHED": ",".join(self.nodes),
        }
        return {**super()._environment(), **self.environment, **own}


def test_operators_can_see_and_steer_from_within_the_pod_and_by_the_token(
    sqlcache: Sqlcache, mariadb: PrivateMariaDB, memcached: PrivateMemcached, tmp_path: Path
) -> None:
    password = sqlcache.settings.upstream.password_file
    assert password is not None
    password.write_text(mariadb.service_password)
    url = f"mysql://{mariadb.service_user}@{mariadb.address}"
    served = Served(tmp_path / "served", url, (memcached.address,))
    served.environment = sqlcache.environment
    with served:
        for command in (("stats", "--statements"), ("flush", "--all"), ("explain", "SELECT 1")):
            done = served.run(*command)
            assert done.returncode == 0, done.stderr
        (token,) = TO_FILL_IN.values()
        for sent, status in ((token, 200), ("another", 401)):
            headers = {"Authorization": f"Bearer {sent}"}
            page = f"http://{served.host}:{served.admin_port}/api/summary"
            assert web.get(page, headers=headers).status_code == status
        assert served.fetch("/live"), "probes want no token"


def test_no_token_that_everybody_knows_is_taken(sqlcache: Sqlcache) -> None:
    """And not none either, by which operators would be left without anything."""
    file = sqlcache.settings.admin.token_file
    assert file is not None
    file.write_text(find("Secret", "sqlcache")["stringData"][file.name])
    with pytest.raises(ConfigError, match="admin: expected at least 8 characters in token_file"):
        load(environment=sqlcache.environment)


def test_a_pods_grace_has_room_for_the_drain(sqlcache: Sqlcache) -> None:
    hooks = [each.get("lifecycle", {}).get("preStop") for each in sqlcache.pod.containers()]
    (pause_s,) = [hook["sleep"]["seconds"] for hook in hooks if hook is not None]
    drain_s = sqlcache.settings.proxy.drain_timeout_s + KILL_AFTER_S
    assert sqlcache.pod.spec["terminationGracePeriodSeconds"] >= pause_s + drain_s + SPARE_S


def test_its_clients_fit_into_its_memory(sqlcache: Sqlcache) -> None:
    settings = sqlcache.settings
    near = settings.cache.near_bytes
    near = min(64 * MIB, sqlcache.memory_bytes // 4) if near is None else near
    workers = settings.proxy.workers
    assert workers is not None or "cpu" in sqlcache.container["resources"]["limits"]
    each = IDLE_BYTES + near + settings.proxy.max_connections * SESSION_BYTES
    assert sqlcache.memory_bytes >= each * (workers or 1)


def test_every_sqlcache_names_all_pods_of_memcached(sqlcache: Sqlcache) -> None:
    owner = find("StatefulSet", "sqlcache-memcached")
    service = find("Service", owner["spec"]["serviceName"])
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    (port,) = service["spec"]["ports"]
    inside = ports(Pod(owner).container("memcached"))[port["targetPort"]]
    names = {
        f"sqlcache-memcached-{n}.{service['metadata']['name']}:{inside}"
        for n in range(owner["spec"]["replicas"])
    }
    assert set(sqlcache.settings.memcached.nodes) == names


def test_memcached_has_room_for_what_it_is_told_to_hold(sqlcache: Sqlcache) -> None:
    container = Pod(find("StatefulSet", "sqlcache-memcached")).container("memcached")
    arguments = container["args"]
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    limit = in_bytes(container["resources"]["limits"]["memory"])
    assert limit >= MEMCACHED_OVERHEAD * int(options["-m"]) * MIB
    largest = int(options["-I"].removesuffix("m")) * MIB
    assert sqlcache.settings.memcached.max_item_bytes < largest
    for probe in ("readinessProbe", "livenessProbe"):
        assert container[probe]["tcpSocket"]["port"] in ports(container)


def test_memcacheds_user_is_a_number() -> None:
    """Its image names the user, and a name is not taken for someone other than root."""
    owner = find("StatefulSet", "sqlcache-memcached")
    assert isinstance(Pod(owner).spec["securityContext"]["runAsUser"], int)


def test_memcached_is_reached_by_sqlcache_alone(sqlcache: Sqlcache) -> None:
    policy = find("NetworkPolicy", "sqlcache-memcached")["spec"]
    assert selected(policy["podSelector"]) == ["sqlcache-memcached"]
    assert (policy["policyTypes"], policy["egress"]) == (["Ingress", "Egress"], [])
    (ingress,) = policy["ingress"]
    (source,) = ingress["from"]
    assert set(source) == {"podSelector"}
    assert sqlcache.pod.name in selected(source["podSelector"])
    assert "sqlcache-memcached" not in selected(source["podSelector"])
    (port,) = ingress["ports"]
    container = Pod(find("StatefulSet", "sqlcache-memcached")).container("memcached")
    assert port["port"] in ports(container)


@pytest.mark.parametrize("sqlcache", ["app"], indirect=True)
def test_the_sidecar_starts_before_its_app_and_serves_it_alone(sqlcache: Sqlcache) -> None:
    (sidecar,) = sqlcache.pod.spec["initContainers"]
    assert (sidecar["name"], sidecar["restartPolicy"]) == ("sqlcache", "Always")
    environment = {each["name"]: each["value"] for each in sqlcache.pod.container("app")["env"]}
    listen = sqlcache.settings.proxy.listen
    assert (listen.host, str(listen.port)) == (
        environment["DATABASE_HOST"],
        environment["DATABASE_PORT"],
    )
    assert listen.host == "127.0.0.1"


@pytest.mark.parametrize("sqlcache", ["sqlcache"], indirect=True)
def test_the_service_leads_to_where_sqlcache_listens(sqlcache: Sqlcache) -> None:
    (port,) = find("Service", "sqlcache")["spec"]["ports"]
    listen = sqlcache.settings.proxy.listen
    assert (listen.host, listen.port) == ("0.0.0.0", ports(sqlcache.container)[port["targetPort"]])
    assert port["port"] == listen.port
    policy = find("NetworkPolicy", "sqlcache")["spec"]
    assert selected(policy["podSelector"]) == ["sqlcache"]
    assert policy["policyTypes"] == ["Ingress"]
    open_ports = {each["port"] for ingress in policy["ingress"] for each in ingress["ports"]}
    assert open_ports == set(ports(sqlcache.container))
