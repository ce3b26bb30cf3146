"""Masked rounds: Python's binding to the native library's part of them. FORMAT.md, "Masked rounds"."""
