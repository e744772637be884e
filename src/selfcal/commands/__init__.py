"""The commands of `selfcal`, one file each; everything heavy is imported when a command runs."""
