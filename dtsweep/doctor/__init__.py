"""Looks at every node before money is spent.

The driver's process, and a task on each node; imports Ray, and torch in functions alone. In reading
order:

    examine         the task on a device: rates of matrix products, counters, versions
    examine_nodes   all GPUs of all nodes at once, each in a process of its own
    look_around     what a node's host has left, its networks and clock
    link_tests      all-reduces within a node and between nodes
    gpu_problems    the judgement of GPUs: their state, and the slow one of a node
    problems        the judgement: what is wrong with a node, and the next step
    host_problems   the judgement of its host and network
    nodes_table     the diagnosis in the terminal
    diagnose        connects, examines all nodes at once, and judges them
"""
