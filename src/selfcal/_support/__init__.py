"""Shared infrastructure: checks, files, locks, signals, random streams, progress, binning, splits."""
