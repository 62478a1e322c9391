"""The long way of one session: a coroutine (`way`) that serves one command after another.

It takes what has no plan, and makes the plans (`planning`); and it goes on with what was begun on
the straight path and has turned out to be unusual (`dispatch`).

What a command means is told by `plan.meanings`. A read is served by `reading`, and what asks for
FOUND_ROWS() by `counting`; what MySQL has to run goes by `running`, and comes back by `answers`.
`standing` follows what became of the session, `writes` what becomes of what it wrote, and
`refusals` tell what an error proves.
"""
