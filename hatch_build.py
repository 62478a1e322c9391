"""Compiles the kernel into the wheel, where Cython, a C compiler and Python.h are.

Elsewhere the wheel is pure Python, and a line says why. SQLCACHE_IMPL in the environment is obeyed
here, too: `pure` compiles nothing, and with `compiled` what cannot be compiled is an error.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path("sqlcache", "_kernel.pyx")
EXTENSION = SOURCE.with_suffix(sysconfig.get_config_var("EXT_SUFFIX"))


class NotCompiled(Exception):
    """Says what is missing."""


class KernelHook(BuildHookInterface[BuilderConfig]):
    """For an editable installation the extension is put beside its source."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        wanted = os.environ.get("SQLCACHE_IMPL")
        self._folder = TemporaryDirectory()
        beside = Path(self.root, EXTENSION)
        if version == "editable":
            beside.unlink(missing_ok=True)  # one of before
        if wanted == "pure":
            return
        try:
            extension = compiled(Path(self.root, SOURCE), Path(self._folder.name))
        except NotCompiled as reason:
            if wanted == "compiled":
                raise
            self.app.display_warning(f"sqlcache is built in pure Python, uncompiled: {reason}")
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        if version == "editable":
            shutil.copy2(extension, beside)
        else:
            build_data["force_include"][str(extension)] = str(EXTENSION)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        self._folder.cleanup()


def compiled(source: Path, folder: Path) -> Path:
    """The extension, made in a folder; of the same source always the same bytes.

    Raises: NotCompiled.
    """
    (folder / SOURCE).parent.mkdir()
    shutil.copy(source, folder / SOURCE)
    code = SOURCE.with_suffix(".c")
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    flags = shlex.split(f"{os.environ.get('CFLAGS', '')} {os.environ.get('LDFLAGS', '')}")
    includes = {sysconfig.get_path(name) for name in ("include", "platinclude")}
    _run(folder, sys.executable, "-m", "cython", "-3", SOURCE, "-o", code)
    compiler += ["-O2", "-g0", "-DNDEBUG", "-fPIC", "-shared", *flags]
    compiler += [f"-I{include}" for include in sorted(includes)]
    _run(folder, *compiler, code, "-o", EXTENSION)
    return folder / EXTENSION


def _run(folder: Path, *command: str | Path) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except OSError as error:
        raise NotCompiled(str(error)) from None
    if done.returncode:
        raise NotCompiled(f"{command[0]} ends with {done.returncode}: {done.stderr.strip()}")
