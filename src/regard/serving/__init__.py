"""Serving: an HTTP API over worker processes that answer in batches."""
