"""Makes models and artifacts: vocabulary, PyTorch model, pre-training, ONNX training artifacts (`[export]`)."""
