"""Views of results for people and programs.

Readers and the driver; imports rich, and pandas in functions alone. In reading order:

    text            words, numbers and tables as a terminal shows them
    progress        the live line of a run
    notes           what to know before trusting the numbers of the report
    content         what the report says, computed once; the renderers below show it
    as_json         the report as JSON values
    tables          table columns of points and of scaling
    terminal        the report in the terminal
    plan            the plan as a person reads it
"""
