"""Timing belongs to the benchmarks: a busy machine must not fail a property."""

from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
