"""The artifacts folder and its tensors; FORMAT.md is the rule."""
