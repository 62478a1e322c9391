"""Control groups as the kernel shows them, in a folder of the test's own."""

import os
from pathlib import Path

import pytest

from sqlcache.process import cgroup

PLENTY = 64


@pytest.fixture(autouse=True)
def _many_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(PLENTY)))


def machine(root: Path, group: str, **files: str) -> Path:
    """A root whose process is in `group`; `files` are by path, with `__` for / and `_dot_` for ."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(group)
    for name, text in files.items():
        file = root / "sys/fs/cgroup" / name.replace("__", "/").replace("_dot_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    return root


def test_without_a_limit_all_cpus_count_and_memory_has_none(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/\n", cpu_dot_max="max 100000", memory_dot_max="max")
    assert cgroup.cpus(root) == PLENTY
    assert cgroup.memory_limit_bytes(root) is None


def test_without_control_groups_all_cpus_count(tmp_path: Path) -> None:
    assert cgroup.cpus(tmp_path) == PLENTY
    assert cgroup.memory_limit_bytes(tmp_path) is None


@pytest.mark.parametrize(
    ("quota", "cpus"), [("200000 100000", 2), ("150000 100000", 1), ("25000 100000", 1)]
)
def test_a_quota_counts_in_whole_cpus_and_at_least_one(
    tmp_path: Path, quota: str, cpus: int
) -> None:
    assert cgroup.cpus(machine(tmp_path, "0::/\n", cpu_dot_max=quota)) == cpus


def test_a_container_sees_its_limits_at_the_root_whatever_its_group_is_called(
    tmp_path: Path,
) -> None:
    root = machine(
        tmp_path,
        "0::/kubepods.slice/pod1/abc\n",
        cpu_dot_max="300000 100000",
        memory_dot_max="268435456",
    )
    assert cgroup.cpus(root) == 3
    assert cgroup.memory_limit_bytes(root) == 256 << 20


def test_the_tightest_limit_of_all_groups_above_counts(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        "0::/system.slice/sqlcache.service\n",
        system_dot_slice__cpu_dot_max="200000 100000",
        system_dot_slice__sqlcache_dot_service__cpu_dot_max="400000 100000",
        system_dot_slice__memory_dot_max="max",
        system_dot_slice__sqlcache_dot_service__memory_dot_max="1000000",
    )
    assert cgroup.cpus(root) == 2
    assert cgroup.memory_limit_bytes(root) == 1_000_000


def test_version_1_is_read_too(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n",
        cpu__docker__abc__cpu_dot_cfs_quota_us="250000",
        cpu__docker__abc__cpu_dot_cfs_period_us="100000",
        cpu__cpu_dot_cfs_quota_us="-1",
        cpu__cpu_dot_cfs_period_us="100000",
        memory__docker__abc__memory_dot_limit_in_bytes="134217728",
        memory__memory_dot_limit_in_bytes="9223372036854771712",
    )
    assert cgroup.cpus(root) == 2
    assert cgroup.memory_limit_bytes(root) == 128 << 20


def test_version_1_without_limits_has_none(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        "4:memory:/\n3:cpu,cpuacct:/\n",
        cpu__cpu_dot_cfs_quota_us="-1",
        cpu__cpu_dot_cfs_period_us="100000",
        memory__memory_dot_limit_in_bytes="9223372036854771712",
    )
    assert cgroup.cpus(root) == PLENTY
    assert cgroup.memory_limit_bytes(root) is None
