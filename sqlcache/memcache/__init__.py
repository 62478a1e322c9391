"""memcached's meta protocol, and the nodes that speak it.

`protocol` turns requests into bytes and bytes into replies, `ring` says which node holds a key;
neither does I/O. `connection` is one pipelined connection to a memcached node, `memory` a node
inside this process; both are a `connection.Node`. `cluster` is all nodes as one, and `health` what
this process knows of the life of each.
"""
