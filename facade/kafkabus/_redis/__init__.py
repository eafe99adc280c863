"""Access to Redis for the blocking and the asyncio SDK: the meaning of Redis's errors."""
