"""`sqlcache serve` as a process: its start and end, its workers, its address, its log.

- `serving` runs it, from its start to its end, and `reloading` reads its settings again.
- `workers` are several processes on one port, with which their parent speaks by `asking`, over
  `messages`; `seats` count the clients of all of them. `forks` say what a child leaves alone.
- `ports` has the address of clients, and takes it over.
- `logs` writes the log's lines, of which `events` keeps the last ones.
- `systemd` is told how it is; `cgroup` and `open_files` say what it may use, `usage` what it does.
"""
