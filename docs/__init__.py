"""The pages. Only the scripts of the atlas are python."""
