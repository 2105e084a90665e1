"""The Ray of a run: found or started, what it has, what its nodes cost, and whether it lives.

The driver and the doctor; imports Ray. In reading order:

    autoscaler      whether a Ray has one, and which nodes it can add
    node_account    how long the nodes of a run were up, by type, and what that costs
    ray_nodes       nodes of a Ray as the account has them: their types and lives
    capacity        what a Ray has, and what fits on it
    token           Ray's token: sent to a cluster that asks for one
    run_folders     temporary folders of a run, and what dead runs have left of theirs
    shipping        workload and user's modules, packed for the nodes; tasks travel through slots
    connect         which Ray is used: one that runs, or a private one
    visit           tasks and answers of all nodes, side by side; refuses versions not the driver's
    heartbeat       whether the Ray of a run is still there
"""
