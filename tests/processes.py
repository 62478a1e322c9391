"""What Linux tells of processes that may end at any time."""

from pathlib import Path


def workers_of(parent: int) -> set[int]:
    """The processes that serve the clients of a sqlcache that is this process."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return {pid for pid in map(int, children) if b"spawn_main" in command_line(pid)}


def command_line(pid: int) -> bytes:
    """Empty where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # of one that ends just now: no such file, or no such process
        return b""
