"""``python -m kafkabus.cli``: the command line, if its script is not on the PATH."""

from kafkabus.cli.program import main

if __name__ == "__main__":
    main()
