"""What a statement means for the cache, decided once: nothing here talks to a client.

`keeper` knows the upstream's catalog, by its `readings`: `unread` is what this process has
redefined itself, `new_names` tell what may have come, `server_watch` whether the server is still
the same. `confirmations` tell whether all that is so now. `reader` says what texts mean by it,
`tagging` which tags a write concerns (its `writeset`), `cacheability` whether a read may be a hit.
`planner` decides: for sessions that are alike (`state`,
`contexts`) and what they send (`commands`, `meanings`; `prepared` and its `executions`,
`prepared_by_name`) it makes `plans`, which the doors only have to execute. What comes of a
statement `explanations` tell people.

- Of a session: its `variables`, `rights` and `temporary` tables, and for how long the server bears
  its `silence`; of its account the `quotas`.
- Of a prepared statement: what its `parameters` are taken for.
- Of rows: `pins`, those of reads in `read_pins`, of writes in `write_pins`; `probes` ask the server
  for the latter.
- Of an error: `refusals` are those that prove that nothing was changed.
"""
