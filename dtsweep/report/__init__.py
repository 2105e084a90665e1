"""Views of results for people and programs.

Readers and the driver; imports rich, and pandas in functions alone. In reading order:

    text            numbers and tables for the terminal
    progress        the live line of a run
    labels          labels of points and axes
    notes           what to know before trusting the numbers of the report
    content         what the report says, computed once; the renderers below show it
    as_json         the report as JSON values
    code            code that trains as a point does
    recommendation  a recommendation in words, and as JSON values
    tables          table columns of points and of scaling
    terminal        the report in the terminal
    laws            from where one more worker doesn't pay, and laws of scaling, in words
    times           training times in the terminal, and as JSON values
    plan            the plan in the terminal, and as JSON values
    doctor          the doctor's diagnosis in the terminal
"""
