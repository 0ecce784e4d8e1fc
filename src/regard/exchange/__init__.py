"""Models from elsewhere and for elsewhere."""
