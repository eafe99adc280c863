"""What is kept in the namespace's own topics, and what is known of clocks."""
