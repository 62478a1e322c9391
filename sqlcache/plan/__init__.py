"""What a statement means for the cache, decided once: nothing here talks to a client.

`keeper` knows the upstream's catalog, `reader` what texts say by it, `tagging` which tags a write
concerns. `planner` decides: for sessions that are alike (`state`, `contexts`) and what they send
(`commands`, `meanings`, `prepared`) it makes `plans`, which the doors only have to execute.
"""
