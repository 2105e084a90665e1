"""The run: connects, hands out, stores.

The driver's process; imports Ray and Ray Tune, but nothing that `run` imports at its top does. In reading order:

    queue           which attempt comes next, and what follows from how one ended; pure
    recorder        turns each finished attempt into rows and stores them
    planned         a run that is planned: options, results so far, its recorder
    shipping        what travels to the nodes
    cluster         which Ray is used, and what fits on it
    prepare         a plan laid out on a cluster; pure
    scheduler       hands the queue's attempts to lanes, called by Ray Tune
    tuner           runs Ray Tune over the scheduler; signals
    on_ray          the run on a Ray, private or not
    in_process      the run in this very process, without Ray
    run             plan, lay out, have measured, store
"""
