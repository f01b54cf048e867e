"""The Gradio page: shows runs while they happen and afterwards."""
