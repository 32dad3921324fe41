"""Search of hyperparameters: trials that are trained, pruned, resumed and compared."""
