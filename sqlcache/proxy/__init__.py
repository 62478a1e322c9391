"""The MySQL door: any MySQL client connects here as if it were MySQL.

`server` accepts whom `admission` lets in, and has the `sessions`. Of each:

- `login` relays the login, by `authentication`. `session` then runs the client's commands by what
  `plan` has decided of them: on the straight path (`straight`) where there is a plan, else the long
  way (`longway`). `relay` passes bytes on, and `copies` are made of those that are to be stored.
- `writes` fences and bumps what a command has written, and `held_back` keeps what its transaction
  has. `own_transaction` and `transaction` say what of the cache that may read.
- `diagnostics` knows what the client's last statement has left behind, and `handles` what it has
  prepared; `questions` ask the server for what is not known. `looking_back` tells which statements
  look at the one before, and `last_command` is what is noted of that.
- `row_changes` tells what of a table's rows writes touch, and `still_to_come` whether more of a
  command's statements may write.
- `signs_of_life`, `idleness` and `embedded_session` are about its client; `kills` tell whom another
  client has ended. `checks` compare hits with what MySQL says, by a `comparison`; `slow_reads` puts
  slow ones into the log.
- `session_parts` has one of each of these, and `session_options` the settings that they go by. All
  sessions of a process have their `room` together.
"""
