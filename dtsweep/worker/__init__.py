"""One trial on one rank: builds it, warms it up, times its window, says how it ended.

Each worker process; imports torch and never Ray. In reading order:

    step_watch      says where the workload is if no step ends for long
    rank            becoming a rank: device, facts, clean memory
    world           its process group, made again for each world; variables of torchrun
    attention       kernels of attention, the one that is asked for and those that ran
    loop            runs steps and keeps the times of `measure.clock`, whose phases the mode marks
    batch_checks    whether batches and parameters are what was asked for
    copies          comparison of gradients and parameters between the ranks with copies
    gradients       gradients and parameters of a rank in one step, to be compared
    in_step         work of all ranks after the window, which may fail on one of them
    exchange_cost   steps without the exchange, and the exchange alone
    idle_time       the time in which a rank's GPU has no work
    stages          the order of what follows a window: checks, idle time, exchange
    after_window    these stages in a sync mode
    timing          warm-up, window, then what follows it
    model_work      the model of a trial, the work of its step, the rates of its device
    training_state  checkpoints of a training, from which the next attempt goes on
    to_target       a training to a loss before the window, evaluated on the way
    mode_trial      a trial in a sync mode
    in_turn         several of them, which take turns
"""
