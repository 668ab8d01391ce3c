"""Scalable topics: their segments in order, and the subscription that retains the segments."""
