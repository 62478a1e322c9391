"""The kernel: the small walks over bytes that each statement takes. Import them from here.

Each is written twice, under one name and for one promise: in Python, where its topic is, and for
Cython in `_kernel.pyx`. `implementation` says which of them runs.
"""

from sqlcache.implementation import IMPLEMENTATION

if IMPLEMENTATION == "compiled":
    from sqlcache._kernel import scan, step_over_rows, without_literals
else:
    from sqlcache.mysql.scan import scan, step_over_rows
    from sqlcache.sql.shapes import without_literals

__all__ = ["scan", "step_over_rows", "without_literals"]
