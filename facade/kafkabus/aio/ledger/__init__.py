"""The asyncio sources of what touches Redis."""
