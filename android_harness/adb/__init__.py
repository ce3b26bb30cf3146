"""The adb command: find it, call it with timeouts, and check its output, as its exit code alone is not reliable."""
