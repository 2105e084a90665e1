"""The report as one self-contained HTML page, written to a file or served.

Readers; `serve` alone opens a connection. In reading order:

    points_table    table of the points: cells, and numbers that sort and filter
    traces          step times of all trials, and the plot of one
    view            content of a page as JSON values
    markup          the HTML text from its template
    page            the page of some results, written whole
    serve           serves the page to browsers of this machine
"""

from __future__ import annotations

from dtsweep.page.page import page_of, page_of_content, write_page

__all__ = ["page_of", "page_of_content", "write_page"]
