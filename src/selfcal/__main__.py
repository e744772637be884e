"""``python -m selfcal`` is the `selfcal` command."""

from selfcal.cli import main

main()
