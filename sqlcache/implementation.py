"""Which implementation of the kernel runs: see `sqlcache.kernel`.

SQLCACHE_IMPL in the environment says so: `compiled`, or `pure` Python. Without it, it is the
compiled one where that was built.
"""

import os
from importlib.util import find_spec
from typing import Final, Literal

from sqlcache.errors import ConfigError

VARIABLE: Final = "SQLCACHE_IMPL"
Implementation = Literal["compiled", "pure"]


def _chosen() -> Implementation:
    wanted = os.environ.get(VARIABLE, "")
    is_built = find_spec("sqlcache._kernel") is not None
    match wanted:
        case "":
            return "compiled" if is_built else "pure"
        case "pure":
            return "pure"
        case "compiled" if is_built:
            return "compiled"
        case "compiled":
            raise ConfigError(
                f"{VARIABLE} = compiled: expected an installation that has the compiled kernel;"
                " this one was built without, where no C compiler was, or no Python.h"
            )
        case _:
            raise ConfigError(f"{VARIABLE} = {wanted}: expected compiled or pure, or nothing")


IMPLEMENTATION: Final = _chosen()
