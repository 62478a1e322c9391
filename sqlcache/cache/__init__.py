"""The coherence engine: what is stored under which key, and when it may be served.

`engine` puts all of it together, and is all that the doors see: what readers ask of it is in
`readers`, what writers do in `writers`.

- What the bytes in memcached mean, without I/O: `keys`, `tags` and the `log_records` of these,
  `slots`, `entry`, `parts`, `seals`.
- Where tags live, and the way to their logs: `placement`, `tag_logs`; `reach`, with patience.
- A read: its `reads` and their `outcomes`. `tag_sets` say on what it hangs, `slots_in_use` by which
  rows that may be told apart. `lookups` ask for all reads of one event-loop turn, `tag_checks`
  judge what the tags' logs say, `near` has entries in the process.
- A miss: `leases` are the right to fill, `store` keeps the answer, `worth` says whether that is
  worth it, `unstorable` knows which cannot be kept, `key_index` notes what hangs on a table.
- A write: its `marks`, and its `fence`. `fences` raise and lift these, `shared_fences` one for
  many; `owed_bumps` could not be made yet, `lapses` end the fences of the dead, `own_commits` were
  ended.
- Read leases: `windows` say what may be served unasked, `promises` in the logs let others know, and
  `kept_open` decides for which tags that is worth it.
- The nodes: `node_watch` disowns one that was away, by `node_items` and `node_questions`, and by
  `node_mementos` one that has lost its memory; `server_notes` say which server's answers a node
  has. `roster` sees to it that all processes use the same ones.

What a process remembers of all this is `bounded` in bytes.
"""
