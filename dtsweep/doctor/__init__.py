"""Looks at every node before money is spent.

The driver's process, and a task on each node; imports Ray, and torch in functions alone. In reading order:

    doctor          what a node's device reaches, which counters can be read, which versions
"""
