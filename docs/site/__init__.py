"""The documentation site: links, pages of linked files, and the reference that is written from the code."""
