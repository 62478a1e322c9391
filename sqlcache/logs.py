"""Log lines: one a change of state, `key=value`, on standard error.

They never hold literals of statements or credentials. What can be counted is a metric instead.
"""

import logging
import sys
from typing import Final

_FORMAT: Final = "time=%(asctime)s level=%(levelname)s part=%(name)s pid=%(process)d %(message)s"


def configure(level: str) -> None:
    """Sends this process's log lines of `level` and above to standard error.

    Call once a process, before anything is logged; `level` is that of the settings' `log.level`.
    """
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.getLevelNamesMapping()[level.upper()],
        format=_FORMAT,
        datefmt="%Y-%m-%dT%H:%M:%S%z",
    )
    for number in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
        logging.addLevelName(number, logging.getLevelName(number).lower())
