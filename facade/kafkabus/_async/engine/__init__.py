"""The engine under receivers, the gateway and the lock renewer: claims, settles, gives back and renews messages."""
