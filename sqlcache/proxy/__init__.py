"""The MySQL door: any MySQL client connects here as if it were MySQL.

`server` accepts, `login` relays the login, `session` runs one client's commands, with what the
session is in `state` and what its statements mean from `planner`.
"""
