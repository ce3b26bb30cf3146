"""Who may talk to the server: phones and their tokens, roles, limits, TLS, and the log of what was done and refused."""
