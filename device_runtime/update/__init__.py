"""Update files, which phones send back, and the codecs of their tensors."""
