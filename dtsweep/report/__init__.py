"""Views of results for people and programs.

Readers and the driver; imports rich, and pandas in functions alone. In reading order:

    text            words, numbers and tables as a terminal shows them
    progress        the live line of a run
    notes           what the report says of its own numbers
    tables          table columns of points and of scaling
    terminal        the report in the terminal
    plan            the plan as a person reads it
"""
