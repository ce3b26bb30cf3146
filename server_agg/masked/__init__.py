"""A masked round: its cohort's stages, its phones' messages, the mean of a sum. FORMAT.md, "Masked rounds"."""
