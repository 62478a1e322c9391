"""The straight path of one session: what has a plan is served in the event loop's own callbacks.

A command that arrives whole is looked for among the plans of the session's context, and an
execution of a prepared statement by what others of it were (`path`). A `Read` is looked up in the
cache (`hits`), a `Pass` is sent to MySQL, and the answer goes to the client (`exchange`; part by
part, `long_answers`), without a task that would have to be switched to. Some commands are answered
before MySQL has heard of them (`ahead`, `preparing`).

What turns out to be unusual is handed over to the long way, which goes on from where it is
(`inflight`): a fill of another's to be waited for, a definition that is another one by now, an
answer that is an error.

A callback that raises ends its session, see `course`, and no other, whoever has called it.

Nothing is decided here. `StraightPath.open` is told under which `terms` commands may be served so;
what depends on a text alone is in its plan.
"""
