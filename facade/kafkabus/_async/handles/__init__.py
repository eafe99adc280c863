"""Client, sender, receiver, session, processor, transaction."""
