"""Compressions, a family to choose from: what travels in place of gradients and parameter changes.

Ranks and the parameter server's shards; imports torch. The list of compressions is
`dtsweep.sweep.compressions`. In reading order:

    compression  what a compression is, and what its object knows of the tensor that is exchanged
    scale_blocks  values as rows of blocks, and each has a scale of its own
    feedback     error feedback: what was left out is added to what comes next
    exchange     the mean of a tensor over workers, by each way in which payloads come together

and a file for each kind of compression, named in `dtsweep.sweep.compressions`; none imports
another.
"""
