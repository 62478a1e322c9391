"""The MySQL door: any MySQL client connects here as if it were MySQL.

`server` accepts, `login` relays the login, `session` runs one client's commands by what `plan` has
decided of them: on the straight path (`straight`) where there is a plan, else the long way
(`longway`).
"""
