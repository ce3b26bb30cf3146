"""The adb command: found, called with timeouts, and never trusted by its exit code alone."""
