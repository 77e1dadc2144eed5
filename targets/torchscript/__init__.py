"""TorchScript: deprecated by PyTorch, for what still loads it."""
