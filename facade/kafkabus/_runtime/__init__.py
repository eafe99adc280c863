"""What the process brings: forks, signals, weak references, repeated log lines."""
