"""Sync modes, a family to choose from: how workers combine their work.

Ranks; imports torch. The list of modes is `dtsweep.sweep.modes`. In reading order:

    meshes          device meshes, made once for each shape and world
    loss_scale      updates with a scaled loss, left out where a gradient overflows
    pass_time       wait of a slow rank, by the time of its own passes
    model_blocks    the blocks of a model, the workload's own or found
    compiled        the model or those blocks compiled, and what that took
    mode            what a mode is, and the trial as one rank sees it
    batches         a rank's batches, made in its process or loaded ahead
    buckets         trained parameters, and values of some of them in one tensor
    weights         what each pass counts, where a workload weighs its batches
    passes          a step's passes, loss in the point's precision and optimizer, for all modes
    clipping        gradients clipped by their norm over the model
    groups          process groups of a part of the ranks, and what ranks have begun in them
    checkpoints     activations of those blocks computed again in backward
    shard_policies  types of gathers, and where shards are
    block_order     the order in which ranks call those blocks, compared
    comm_hook       DDP's buckets averaged compressed
    shared_memory   memory that the ranks of one host share
    wrapped         what the modes share that wrap the model by `DistributedDataParallel`
    sharded         what the modes share that shard the model by `fully_shard`
    shared_layers   layers that workers share: tensor parallel
    pipeline        stages of a model, and the schedule of a step's passes
    after_backward  what the modes share that exchange when backward is done
    changes         changes of parameters since workers agreed, and their mean
    local_steps     what the modes share whose workers train alone for a period
    divided         ddp and fsdp of workers that share a model

and a file for each mode or family of modes, named in `dtsweep.sweep.modes`; none imports another.
"""
