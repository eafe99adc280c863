"""AMQP 1.0 without I/O: frames and their performatives, and the engine of one connection."""
