"""The run: connects, hands out, stores.

The driver's process; imports Ray and Ray Tune, except `run` and what it imports. In reading order:

    progress        progress of a run
    slot_queue      trials of a slot's session with its canaries
    queue           which attempt comes next, and what follows from how one ended; no Ray, no clock
    tally           how the trials of a run ended, and its exit code
    unmeasured      attempts and points without a measurement, and what their rows say
    canary_levels   drift of a run's canaries
    recorder        turns each finished attempt into rows and stores them
    budget          limits of time and money, and what is spent of them
    run_writer      the record of a run in its results, written while the run lives
    planned         a run that is planned: options, results so far, its recorder, its time
    supply          batches of trials for the queue, as the policy asks for more
    signals         signals that end a run
    prepare         a plan laid out on a cluster; pure
    slots           the actors of the slots: started, watched, ended, replaced
    placement       gives waiting sessions to slots: when each begins, and on which nodes
    members         the points of an attempt: one, or several that are measured in turn
    running         an attempt under way: its time limit, and its result
    attempts        attempts handed out to free slots, watched, their results fetched and stored
    tuner           runs Ray Tune: its search algorithm, and an actor that has slots run attempts
    on_ray          a run on a Ray, private or not: connects, has `prepare` and `tuner` do the rest
    in_process_run  the run in this very process, without Ray
    run             plan, lay out, have measured, store
"""
