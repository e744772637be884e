"""Side-by-side timings, printed as ratios within one run."""
