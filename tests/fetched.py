"""What tests and benchmarks get from the registries, by their ordinary clients: into a folder,
once."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from sqlcache.errors import SqlcacheError


class NotFetched(SqlcacheError):
    """Something, or a program it needs, is not to be had here: says which."""


def program(name: str, what: str) -> str:
    """The path of a program. Raises: NotFetched, which says that `what` need it."""
    found = shutil.which(name)
    if found is None:
        raise NotFetched(f"{name} is not installed, which {what} need")
    return found


def fetch(command: list[str], folder: Path, what: str) -> str:
    """What a registry's client printed to its standard output. Raises: NotFetched."""
    done = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = (done.stdout + done.stderr)[-2000:]
        raise NotFetched(f"{what} cannot be fetched; {Path(command[0]).name} says:\n{said}")
    return done.stdout


def once(folder: Path, name: str, make: Callable[[Path], Path]) -> Path:
    """What was fetched, `folder/name`; `make` gets a folder and returns where in it that is."""
    made = folder / name
    if not made.exists():
        scratch = folder / f"{name}.part"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        make(scratch).rename(made)
        shutil.rmtree(scratch)
    return made


def environment(folder: Path, name: str, *requirements: str) -> Path:
    """The interpreter of a virtual environment, `folder/name`, that has these packages."""

    def make(scratch: Path) -> Path:
        made = scratch / "environment"
        fetch([sys.executable, "-m", "venv", str(made)], scratch, f"the virtual environment {name}")
        pip = [str(made / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
        fetch([*pip, "install", "--quiet", *requirements], scratch, f"what {name} has")
        return made

    # It is run as python -m only: the scripts in it know the folder where it was made.
    return once(folder, name, make) / "bin" / "python"


def apt_options(scratch: Path) -> list[str]:
    """Options by which apt-get keeps lists and archives in this folder, and needs no rights."""
    for name in ("lists/partial", "cache/archives/partial"):
        (scratch / name).mkdir(parents=True)
    settings = {
        "Dir::State::Lists": scratch / "lists",
        "Dir::Cache": scratch / "cache",
        "APT::Sandbox::User": "root",  # it may write here; none where we are not root
    }
    return [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
