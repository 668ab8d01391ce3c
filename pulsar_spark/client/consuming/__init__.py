"""Consuming: consumers, which subscribe, take messages, and acknowledge them.

Owns subscriptions and received messages. Must not know which entries are wanted, nor how messages are
decoded.
"""
