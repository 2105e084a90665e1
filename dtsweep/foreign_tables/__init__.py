"""Other people's tables of measurements, as rows of results.

Readers. In reading order:
"""
