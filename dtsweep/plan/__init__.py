"""What is done, what is to do, in which order: from a sweep and its results.

Any process; no Ray. In reading order:

    plan            what is done, what is to do, in which order
"""
