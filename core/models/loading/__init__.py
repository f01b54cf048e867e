"""Loads and checks models."""
