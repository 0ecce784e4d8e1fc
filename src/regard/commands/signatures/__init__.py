"""The arguments and options of each command, with its help; what a command needs is imported when it runs."""
