"""Requests that arrive at a rate of their own, served by Ray Serve: the open loop.

Ranks hold the resources: rank 0 is the client, and a replica uses those of each rank. The driver
imports `apps` alone. In reading order:

    requests        arrivals of requests, their ends, and the end of a window
    client          sends each request at its time, and waits for none of them
    replica         the deployment: a model behind Ray Serve's dynamic batches
    apps            applications on Ray Serve: started, deleted, and those that were left behind
    open_loop       one attempt of an open loop on one rank
"""
