"""Phones over adb: discover, push, pin, run, watch heat and memory, pull. Not built yet: see ARCHITECTURE.md."""
