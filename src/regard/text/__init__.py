"""Written language: tokenizers, scripts, labels, span tags, and the display of tokens."""
