"""Rows of results for other tools: CSV, JSON, MLflow, Weights & Biases, TensorBoard.

Readers and the driver; each file imports its client in functions alone. In reading order:

    plain_values    values of a frame as plain Python values, and as text
    steps           steps of trials, over all workers of each
    exported        trials as other tools take them: parameters, metrics, tags and steps
    to_csv          CSV files: trials, columns and steps
    to_json         one JSON document
    run_folder      a folder for each trial, which is there whole or not at all
    to_mlflow       MLflow: an experiment for the sweep, a run for each trial
    to_wandb        Weights & Biases: an offline run for each trial
    to_tensorboard  TensorBoard: a run for each trial, with the HParams tab
    destinations    places that trials can be sent to
"""
