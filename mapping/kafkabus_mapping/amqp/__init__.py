"""AMQP 1.0: its types, and messages that are encoded in them."""
