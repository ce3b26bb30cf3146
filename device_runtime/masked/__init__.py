"""Masked rounds: Python's binding to the native library's part of them. FORMAT.md, "Masked rounds"."""

FORMAT = "phonograd-masked"  # of a masked update's file
