"""Inspection of attention: recordings, and a page that shows them."""
