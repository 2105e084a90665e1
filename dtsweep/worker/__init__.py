"""One trial on one rank: builds it, warms it up, times its window.

Each worker process; imports torch and never Ray. In reading order:

    rank            becoming a rank: device, facts, clean memory
    loop            the timed loop of a rank, and its steps by segment
    after_window    what is measured after the window
    timing          the timed part of a trial on one rank
    attempt         one attempt at a trial on one rank
    torchrun        one point under torchrun, without Ray
    in_process      a world of one rank in this very process
"""
