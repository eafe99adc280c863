"""What becomes of a message that was received, or is moved."""
