"""Rows of results for other tools: CSV, JSON, MLflow, Weights & Biases, TensorBoard.

Readers; each file imports its client in functions alone. In reading order:

    exported        trials as other tools take them: parameters, metrics, tags and steps
    to_files        CSV files and a JSON document
    run_folder      a folder for each trial, which is there whole or not at all
    to_mlflow       MLflow: an experiment for the sweep, a run for each trial
    to_wandb        Weights & Biases: an offline run for each trial
    to_tensorboard  TensorBoard: a run for each trial, with its parameters
"""
