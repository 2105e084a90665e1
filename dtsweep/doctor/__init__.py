"""Looks at every node before money is spent.

The driver's process, and a task on each node; imports Ray, and torch in functions alone. In reading
order:

    examine         the task on a node: rates of matrix products, counters, versions
    look_around     what a node's host has left, its networks and clock; the dashboard
    fit             the alpha–beta model of an exchange
    link_tests      all-reduces of two ranks, within a node and between two
    problems        the judgement: what is wrong with a node, and the next step
    host_problems   the judgement of its host and network
    nodes_table     the diagnosis in the terminal
    diagnose        connects, examines all nodes at once, and judges them
"""
