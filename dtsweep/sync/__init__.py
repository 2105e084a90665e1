"""Sync modes, a family to choose from: how workers combine their work.

Ranks; imports torch, `parameter_server` and `chain` also Ray. The list of modes is
`dtsweep.sweep.modes`. In reading order:

    meshes          device meshes, made once for each shape and world
    pass_time       time of a rank's own passes, and the wait of a slow one
    mode            what a mode is, and the trial as one rank sees it
    buckets         trained parameters, and values of some of them in one tensor
    weights         what each pass counts, where a workload weighs its batches
    passes          a step's passes, loss in the point's precision and optimizer, for all modes
    clipping        gradients clipped by their norm over the model
    groups          process groups of a part of the ranks, and what ranks have begun in them
    model_blocks    the blocks of a model, the workload's own or found
    checkpoints     activations of those blocks computed again in backward
    shard_policies  types of gathers, what is kept after forward, and where shards are
    block_order     the order in which ranks call those blocks, compared
    comm_hook       DDP's buckets averaged compressed
    chain           replicas of a shard, around those that die
    pushes          what a worker pushes to a shard of the parameter server
    server_shard    a shard of the parameter server
    shared_memory   memory that the ranks of one host share
    wrapped         what the modes share that wrap the model by `DistributedDataParallel`
    after_backward  what the modes share that exchange when backward is done
    changes         changes of parameters since workers agreed, and their mean
    local_steps     what the modes share whose workers train alone for a period

and a file for each mode or family of modes, named in `dtsweep.sweep.modes`; none imports another.
"""
