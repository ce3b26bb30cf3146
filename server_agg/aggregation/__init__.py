"""Aggregating updates into the next model: pure objects and arithmetic, no SQL, no HTTP."""
