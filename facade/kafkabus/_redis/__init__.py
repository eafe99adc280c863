"""What both halves share of Redis: what its refusals mean."""
