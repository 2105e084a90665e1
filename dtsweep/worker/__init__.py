"""One trial on one rank: builds it, warms it up, times its window.

Each worker process; imports torch and never Ray. In reading order:

    rank            becoming a rank: device, facts, clean memory
    world           its process group, made anew for each world of a session
    debugger        whether a debugger is attached, and what it must not cost
    loop            runs steps and keeps their times
    checks          what is looked at outside the window: batches, gradients
    reference       on request: the first step's gradient beside one worker's
    after_window    what is measured after the window
    timing          warm-up, window, then what follows it
    attempt         builds a trial, has it timed, says how it ended
    torchrun        one point under torchrun, without Ray
    in_process      a world of one rank in this very process
"""
