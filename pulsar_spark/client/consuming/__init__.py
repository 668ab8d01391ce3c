"""Consuming: consumers, which subscribe, receive messages, and acknowledge them.

Owns subscriptions and received messages. Must not depend on ``client.reading``, which chooses entries.
"""
