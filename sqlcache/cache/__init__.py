"""The coherence engine: what is stored under which key, and when it may be served.

`keys`, `tags` and `entry` say what the bytes in memcached mean and do no I/O. `engine` is the three
verbs the doors use (lookup, fill, bump), with `lookups` for one event-loop turn's `reads` and their
`outcomes`, and `fences` for the writes.
"""
