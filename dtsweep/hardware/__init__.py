"""Devices and hosts: what they are, what they can do, what they did.

Ranks, and doctor's task on each node; imports torch, NVML and psutil. In reading order:

    device          waits for a device's work, and for all ranks
    random_states   random states of a process, kept for a while
    backend_flags   process-wide settings of torch, kept for a while
    process_state   state of a process that a workload may change, restored after each attempt
    gpu_place       which GPU a rank has, and worlds in which two ranks have one
    nvml            what NVML says of a device, unknown where it says nothing
    host            counters of a host: network and CPU energy
    other_load      CPU use of other processes, on the cores that we may use
    readiness       what a host has left for a run: memory, disk, idle GPUs
    telemetry       what devices and hosts did in a window: columns of `ranks`, stored as they come
    memory          the peak of a trial, and cleaning up after it
    peaks           what a device can do: a table, and a matrix product
    bandwidth       what an operation costs that hardly computes: its launch, its bytes
    variables       environment variables that change what libraries do
    fingerprint     what a rank runs on: the facts behind env_id
"""
