"""Rows of results for other tools: CSV, JSON, MLflow, Weights & Biases, TensorBoard.

Readers and the driver; each file imports its client in functions alone. In reading order:
"""
