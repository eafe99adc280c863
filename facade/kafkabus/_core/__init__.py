"""Values and rules that need no input or output."""
