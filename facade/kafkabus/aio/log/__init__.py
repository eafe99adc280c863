"""The asyncio sources of what touches Kafka."""
