"""The commands of `regard`, one file each."""
