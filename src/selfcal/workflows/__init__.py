"""Whole jobs on tables, as the commands run them: train and judge, evaluate, recalibrate, compare."""
