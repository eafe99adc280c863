"""Effects of the process: forks, signals, weak references, repeated log lines."""
