"""Makes the bundled models: corpora to token files, training, distilling, evaluation."""
