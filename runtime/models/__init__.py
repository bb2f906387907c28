"""One module per architecture, named as in the checkpoint's model_type."""
