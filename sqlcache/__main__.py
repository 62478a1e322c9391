"""`python -m sqlcache` is `sqlcache`."""

import sys

from sqlcache.cli import main

if __name__ == "__main__":
    sys.exit(main())
