"""Rows of results for other tools: CSV and JSON.

Readers. In reading order:

    exported        trials as other tools take them: parameters, metrics, tags and steps
    to_files        CSV files and a JSON document
"""
