"""The program of Python."""
