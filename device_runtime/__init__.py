"""What runs on the phone: file formats, tokenizer, windows, trainer, evaluation and update codecs. NumPy only."""
