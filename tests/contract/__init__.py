"""Promises of every sync mode and compression, and checks that name the ones that are broken.

regression         a small problem, and what plain PyTorch makes of it
training           training of a mode in all cases, on each rank of gloo processes
promises           what every mode promises
mode_check         `check_mode`: the promises that a mode breaks, in words
simulated          workers as threads, for compressions
compression_check  `check_compression`: the same of a compression
"""
