"""A phone while it is ours: locked, files pushed by hash, programs run and watched, all of it undone at the end."""
