"""The Gradio page: what a run looks like while it happens and afterwards."""
