"""Consuming: consumers, which subscribe, receive messages, and acknowledge them.

Owns subscriptions and received messages. Must not depend on the choice of entries, nor on their decoding.
"""
