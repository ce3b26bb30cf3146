"""Phones over adb: discover them, benchmark training on them, and run federated rounds with them."""
