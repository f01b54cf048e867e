"""The Gradio page and its APIs."""
