"""The result of a phone bench as JSON, tables, page and trace, and its comparison with a baseline."""
