"""The report as one self-contained HTML page, written to a file or served.

Readers; opens no connection but that of `serve`. In reading order:
"""
