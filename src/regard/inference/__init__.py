"""Search over any model that scores the next token, and the threads it runs on."""
