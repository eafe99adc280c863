"""AMQP 1.0: its types, and messages encoded with them."""
