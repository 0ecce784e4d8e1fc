"""The atlas: one page for each idea of the lectures, and the scripts that run, check and list them."""
