"""Reads the catalog and the global variables from the upstream, over sqlcache's own connection.

That connection belongs to the service account. The smallest grant with which everything here works,
on MySQL and MariaDB alike, is

    GRANT SELECT, SHOW VIEW, TRIGGER ON *.* TO 'sqlcache'@'%';

directly or through a default role. SELECT shows the tables (and, in `mysql.func`, the loadable
functions), SHOW VIEW the bodies of views, TRIGGER the triggers; MariaDB shows foreign keys only to
accounts that hold more than SELECT. With less the load still succeeds, and the catalog says
`triggers_visible=False`: then every write is taken to write everything, and no view is cacheable.

`load` has the verbs. `server` reads what the server as a whole has, `tables` the tables and what
leads from one to another, `columns` what tells their rows apart, `code` the routines and triggers,
each by a `selection` of what is in a scope.

Source: MySQL Reference Manual, "INFORMATION_SCHEMA Tables"; MariaDB Knowledge Base, "Information
Schema Tables".
"""
