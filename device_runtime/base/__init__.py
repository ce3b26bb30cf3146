"""What all other packages use: errors with their exit codes, atomic file writes."""
