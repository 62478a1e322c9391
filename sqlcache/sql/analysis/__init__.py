"""Reads a text: what each of its statements does, told from the text alone.

The laws:

- No text raises. What cannot be read is `Kind.UNKNOWN`: it writes everything, may commit, and
  leaves a session whose settings are unknown.
- Default deny. `cacheable` holds only for a query every word of which was judged; the tables are
  found twice, from our own tokens and by sqlglot, and both must agree.
- Writes err on the side of too many. A function that is not built in may write anything.
- Names stay as written. The default schema, views, triggers, foreign keys, sequences, temporary
  tables, system schemas reached by the default schema, and stored functions that carry the name
  of a function built in elsewhere (`Statement.functions`) are for who knows them to add.

A text goes from `texts` (its statements one by one) to `verbs` (the first word decides) to a
reader: `queries`, `changes`, `definitions`, `transactions` or `session`. They step over tokens
with a `cursor` and ask `calls` what the functions in between mean.

Source: https://dev.mysql.com/doc/refman/9.4/en/sql-statements.html,
https://dev.mysql.com/doc/refman/9.4/en/implicit-commit.html,
https://mariadb.com/kb/en/sql-statements/,
https://mariadb.com/kb/en/sql-statements-that-cause-an-implicit-commit/.
"""

from sqlcache.sql.analysis.identifiers import IdentifierUse, identifiers_in
from sqlcache.sql.analysis.texts import analyse

__all__ = ["IdentifierUse", "analyse", "identifiers_in"]
