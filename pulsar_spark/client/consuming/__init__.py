"""Consuming: consumers, which subscribe, take messages, and acknowledge them.

Owns subscriptions and what comes through them. Must not know which entries are wanted, nor how messages are
decoded.
"""
