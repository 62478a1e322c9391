"""A process that may open no more files."""

import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def no_more_files() -> Iterator[None]:
    """This process may open none meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as opened:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1024), hard))
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        try:
            while True:
                opened.enter_context(open("/dev/null", "rb"))
        except OSError:
            yield
