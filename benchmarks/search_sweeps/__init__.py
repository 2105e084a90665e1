"""Sweeps of benchmarks/search_here.py."""
