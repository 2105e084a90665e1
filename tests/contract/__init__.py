"""Promises of every sync mode, and what checks of modes and compressions share.

regression  a small problem, and what plain PyTorch makes of it
loop        training by a mode on one rank
training    training of a mode in all cases, on each rank of gloo processes
promises    what every mode promises
simulated   workers as threads, for compressions
"""
