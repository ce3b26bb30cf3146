"""An epoch on a user's text, which can stop and go on."""
