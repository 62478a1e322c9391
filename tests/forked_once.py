"""What each start of sqlcache makes anew though it is the same for all: made once, in the process
whose forks they are, which imports this. See `forked`."""

from functools import cache
from unittest.mock import Mock

from sqlcache import cli
from sqlcache.admin import dashboard
from sqlcache.admin.site import site
from sqlcache.process import cgroup

for module, name in (
    (cgroup, "memory_limit_bytes"),
    (cli, "make_parser"),
    (dashboard, "routes"),
):
    vars(module)[name] = cache(vars(module)[name])

cgroup.memory_limit_bytes()
vars(cli)["make_parser"]()
site(Mock(), Mock())  # for the patterns of its paths, too, which `re` keeps
