"""The binlog door: what is changed around sqlcache is seen as soon as the server has logged it.

A tailer reads the server's binary log as a replica does, and bumps what each transaction changed:

- `events` takes the packets apart into the log's events, `transactions` gathers these into what
  became visible at once, a `change`, `session_settings` reads by which its statements ran; no I/O,
  no clock. `names` says what commits are called.
- `effects` finds the tags, by the catalog and the analysis that the proxy's writes go by;
  `hindsight` says whether that is of then, `additions` which definitions do not matter to that,
  `temporary` knows the tables that no catalog has.
- `source` is the server: whether its log can be followed, and when a commit can be seen.
- `turns` elects one tailer among all processes, `tailer` is the one that reads. `bookmark` says
  from where on, `lag` how far it is behind, and `unsettled` what it is to bump once more.
- `places` tells the nodes up to where all was bumped, `proofs` go by that.
- `follower` is a process's part in all that: whether the log is followed in time (`lateness`), and
  that of its own server (`own_server`).
"""
