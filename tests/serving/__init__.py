"""Tests of `dtsweep.serving`."""
