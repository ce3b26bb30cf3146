"""Which phones are attached, what they are, and whether they are ready."""
