"""A sync mode, a compression and a workload for dtsweep."""
