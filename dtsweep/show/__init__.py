"""Plots, the report as one HTML page, and results in notebooks.

Readers; imports Plotly in functions alone. In reading order:

    plot            what a plot is: traces, words, table
    style           colours, symbols, patterns; text of others for Plotly
    numbers         numbers of results as JSON values, error bars
    points          points with the texts and keys that all plots give them
    bar_rows        horizontal bars, one row per point
    frontier_traces  lines and marks of the frontier plot
    frontier_plot   step time against throughput
    scaling_plot    speed-up by workers or nodes
    shares_plot     parts of a step
    figures         plots of a page, and plots as Plotly figures: `dtsweep.plots`
    points_table    table of the points: cells, and numbers that sort and filter
    view            content of a page as JSON values
    markup          the HTML text from its template
    page            the page of some results, written whole
    notebook        HTML of studies, plans and recommendations in Jupyter
"""
