"""Replays of a task: finds rows stored by earlier runs of the query, and rows still to be sent."""
