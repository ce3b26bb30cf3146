"""What executes an artifacts folder: our engine, and ONNX Runtime, which is imported by its own module alone."""
