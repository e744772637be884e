"""The papers' tables and figures, on top of the public API only."""
