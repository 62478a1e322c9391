"""What sqlcache itself asks of MySQL, by an account of its own.

`connection` reads the catalog, and `check` finds out whether MySQL answers, each by a connection
that `own_logins` opens as `opening` does. `logins` tells what the server makes of those of clients.
`prober` asks over a `pipeline` what rows are like.
"""
