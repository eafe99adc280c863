"""Golden data: all that an earlier version stored, kept as text and loaded into the Kafka and Redis of a test.

``python -m tests.golden.make FOLDER`` wrote each folder with the first release of its format; it is not written again.
"""
