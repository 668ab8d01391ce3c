"""A task that may be run again: what earlier runs have stored, and which rows are still to be sent."""
