"""What a phone sends back: update files, and the codecs of their tensors."""
