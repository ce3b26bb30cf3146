"""What `import phonograd` gives (docs/python.md) and what the commands call: one module a job, which prints nothing."""
