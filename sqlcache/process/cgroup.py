"""What the container, or the unit, that this process runs in may use: processors and memory.

A limit stands in the process's own control group or in any above it; the tightest counts. Inside
of a container the path that the kernel names may be that of the host: what is not there is skipped.

Source: Linux's Documentation/admin-guide/cgroup-v2.rst (cpu.max, memory.max) and cgroup-v1
(cpu.cfs_quota_us, cpu.cfs_period_us, memory.limit_in_bytes).
"""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

_ROOT: Final = Path("/")
_V1_UNLIMITED: Final = 1 << 62  # v1 says "no limit" as the largest number of whole pages


def cpus(root: Path = _ROOT) -> int:
    """Whole processors this process may use, at least 1."""
    usable = len(os.sched_getaffinity(0))
    return max(1, int(min([usable, *_cpu_quotas(root)])))


def memory_limit_bytes(root: Path = _ROOT) -> int | None:
    """The most memory this process's group may use; None where it has no limit."""
    limits = [int(text) for text in _values(root, "memory", "memory.max") if text != "max"]
    v1 = map(int, _values(root, "memory", "memory.limit_in_bytes"))
    limits += [limit for limit in v1 if limit < _V1_UNLIMITED]
    return min(limits, default=None)


def _cpu_quotas(root: Path) -> Iterator[float]:
    for text in _values(root, "cpu", "cpu.max"):
        quota, period = text.split()
        if quota != "max":
            yield int(quota) / int(period)
    quotas = _values(root, "cpu", "cpu.cfs_quota_us")
    periods = _values(root, "cpu", "cpu.cfs_period_us")
    for quota, period in zip(quotas, periods, strict=True):
        if int(quota) > 0:
            yield int(quota) / int(period)


def _values(root: Path, controller: str, file: str) -> Iterator[str]:
    """The file's content in each of the process's groups of the controller that has it."""
    for folder in _groups(root, controller):
        try:
            text = (folder / file).read_text().strip()
        except OSError:
            continue
        if text:
            yield text


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of the process's group and of those above it, of both versions."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    mounts = root / "sys/fs/cgroup"
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mount = mounts
        elif controller in controllers.split(","):
            mount = mounts / controller  # where several share a mount, each has a link to it
        else:
            continue
        inside = PurePosixPath(path.lstrip("/"))
        yield from (mount / each for each in (inside, *inside.parents))
