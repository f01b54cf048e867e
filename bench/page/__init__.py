"""Measurements of the page in a real Chromium. Only this folder and the suites of the page import
ui and storage."""
