"""Isomorph: export PyTorch models and prove that the artifact computes the same."""
