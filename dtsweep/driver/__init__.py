"""The run: connects, hands out, stores.

The driver's process; imports Ray and Ray Tune, except `run` and what it imports. In reading order:

    progress        progress of a run
    queue           which attempt comes next, and what follows from how one ended; no Ray, no clock
    tally           how the trials of a run ended, and its exit code
    unmeasured      attempts and points without a measurement, and what their rows say
    canary_levels   drift of a run's canaries, and the interference of trials that run at once
    recorder        turns each finished attempt into rows and stores them
    node_account    how long the nodes of a run were up, by type, and what that costs
    budget          limits of time and money, and what is spent of them
    run_writer      the record of a run in its results, written while the run lives
    planned         a run that is planned: options, results so far, its recorder, its time
    supply          batches of trials for the queue, as the policy asks for more
    signals         signals that end a run
    shipping        workload and user's modules, packed for the nodes; tasks travel through slots
    autoscaler      whether a Ray has one, and which nodes it can add
    ray_nodes       nodes of a Ray as the account has them: their types and lives
    cluster         what a Ray has, and what fits on it
    cost_on_cluster  nodes of a cluster that a plan would run on, and what they cost
    token           Ray's token: sent to a cluster that asks for one
    run_folders     temporary folders of a run, and what dead runs have left of theirs
    connect         which Ray is used: one that runs, or a private one
    visit           tasks and answers of all nodes, side by side; refuses versions not the driver's
    heartbeat       whether the Ray of a run is still there
    prepare         a plan laid out on a cluster; pure
    slots           the actors of the slots: started, watched, ended, replaced
    placement       gives waiting sessions to slots: when each begins, and on which nodes
    scheduler       gives Ray Tune the queue's attempts, fetches results from slots, has them stored
    tuner           runs Ray Tune; its `TrialRunner`, an actor, has a slot run each attempt
    on_ray          a run on a Ray, private or not: connects, has `prepare` and `tuner` do the rest
    in_process_run  the run in this very process, without Ray
    run             plan, lay out, have measured, store
"""
