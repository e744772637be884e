"""Whole jobs on tables, as the commands run them: train, evaluate, recalibrate, compare."""
