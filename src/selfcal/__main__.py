"""``python -m selfcal`` is the `selfcal` command."""

from selfcal.commands.app import main

main()
