"""The parameter server: a mode whose parameters are updated by servers.

Ranks, and actors of the session; imports torch, and `parameter_server` Ray. In reading order:

    pushes            what a worker pushes to a shard
    shard             a shard of the parameters, on its server
    parameter_server  the mode on a rank: pushes and pulls
"""
