"""What everything stands on: errors with their exit codes, and files that appear whole."""
