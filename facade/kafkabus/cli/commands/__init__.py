"""The commands, a module for each group; they import the modules for Kafka and Redis only when they run."""
