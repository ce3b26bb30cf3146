"""Updates into the next model: pure objects and arithmetic, without SQL and HTTP."""
