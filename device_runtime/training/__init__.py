"""Training on a user's text, which can be interrupted and resumed."""
