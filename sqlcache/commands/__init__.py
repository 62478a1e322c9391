"""What each command of the command line does; `sqlcache serve` is in `process`.

- `parser` says what may be said, and `completions` tells shells.
- `first_files` is `init`, `connect_check` a part of `check-config`, and `healthcheck` itself.
- `explain` says what becomes of a statement, `explain_remotely` asks a running sqlcache.
- `stats` asks memcached, `remote` a running sqlcache, for `flush`, too; `suggestions` are rules
  worth adding. `top` is a page in the terminal, `top_page`.
- `moving` is `save` and `load`, with a file that `saved_files` reads and writes.
- `terminal` and `toml` write for people; `replaced` is what a written file takes the place of.
"""
