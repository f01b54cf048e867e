"""Measurements of the page in a real Chromium. In bench only this folder imports ui."""
