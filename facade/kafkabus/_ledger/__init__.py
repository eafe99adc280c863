"""The ledger: which client may see which offset of a log, decided by one Lua script per request."""
