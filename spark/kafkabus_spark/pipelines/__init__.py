"""Pipelines as programs: ``python -m kafkabus_spark.pipelines --help``, or by ``spark-submit``."""
