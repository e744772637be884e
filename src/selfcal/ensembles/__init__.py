"""Several models that answer as one: folds, training side by side, selection, mixing and distillation."""
