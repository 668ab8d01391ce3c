"""Replays of a task: finds rows stored by earlier runs, and rows still to be sent."""
