"""Upstream code that cannot be captured as written, made capturable; one file per library part."""
