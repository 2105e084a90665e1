"""One trial on one rank: builds it, warms it up, times its window, says how it ended.

Each worker process; imports torch and never Ray. In reading order:

    step_watch      says where the workload is if no step ends for long
    rank            becoming a rank: device, facts, clean memory
    world           its process group, made again for each world; variables of torchrun
    loop            runs steps and keeps the times of `measure.clock`, whose phases the mode marks
    batch_checks    whether batches and parameters are what was asked for
    copies          comparison of gradients and parameters between the ranks with copies
    gradients       gradients and parameters of a rank in one step, to be compared
    reference       on request: the first step's gradient compared with one worker's
    in_step         work of all ranks after the window, which may fail on one of them
    exchange_cost   steps without the exchange, and the exchange alone
    idle_time       the time in which a rank's GPU has no work
    after_window    after a window: checks, counts, the cost of the exchange, a profile
    timing          warm-up, window, then what follows it
    optimizer_steps  ends of optimizer steps of any training loop
    loader_watch    batches that such a loop takes: their time and samples
    script_guard    copy on write for what a script's folder links to
    script_folder   the working directory of a script
    script          a script of the user, run as the main program
    no_steps        how a loop is ended, also one without steps that can be seen
    interpreter     settings of Python and torch that such a loop changes
    patches         functions of libraries that it replaces
    library_state   what libraries know of a process
    given_back      all of that, restored after its trial
    own_parts       timed steps of a loop that goes on by itself
    own_facts       its model, wrapper and precision, read off its objects
    own_checks      meaning of its updates, by those of all ranks
    own_exchange    its steps without the exchange
    own_after       what follows its window
    own_loop        a training loop of the user, measured from inside its steps
    own_trial       a trial of such a loop
    model_work      the model of a trial, the work of its step, the rates of its device
    mode_trial      a trial in a sync mode
    attempt         one attempt at a trial: has it measured, says how it ended
    in_process      a world of one rank in this very process
"""
