"""A task that may be run again: rows stored by earlier runs, and rows still to be sent."""
