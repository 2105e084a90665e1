"""Sync modes, a family to choose from: how workers combine their work.

Ranks; imports torch, and `parameter_server` Ray. The list of modes is `dtsweep.sweep.modes`. In reading order:

    mode            what a mode is, and the trial as one rank sees it
    passes          the passes of a step, which all modes share

and a file for each mode of `MODES`, which imports no other mode.
"""
