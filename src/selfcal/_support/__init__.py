"""What every part of the library stands on: checks, files, locks, signals, random streams, progress."""
