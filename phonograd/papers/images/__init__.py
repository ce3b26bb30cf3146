"""Images on many nodes: paper P's fine-tuning of a model of digits without forgetting (Table 3)."""
