"""sqlcache by which a write forgets but some rows' answers in a log that is new, too: short scripts
would have few such writes else, and where no log is lost under a fence nothing is wrong by that."""

import sys

from sqlcache.cache.slots import KnownLog
from sqlcache.cli import main

if __name__ == "__main__":
    setattr(KnownLog, "is_that_since", lambda *_: True)  # noqa: B010
    sys.exit(main())
