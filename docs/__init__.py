"""Documentation pages, and the program that refreshes their numbers."""
