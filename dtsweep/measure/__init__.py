"""Clocks, windows and statistics: the parts of a measurement."""
