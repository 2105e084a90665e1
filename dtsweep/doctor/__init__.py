"""Looks at every node before money is spent.

The driver's process, and a task on each node; imports Ray, and torch in functions alone. In reading order:

    examine         the task on a node: rates of matrix products, counters, versions
    problems        the judgement: what is wrong with a node, and the next step
    diagnose        connects, examines all nodes at once, and judges them
"""
