"""The one error class for faults a user can cause."""


class UserError(ValueError):
    """One clear sentence: what is wrong and where, what was expected, what was found, what to do.

    The command line prints it without a traceback and exits with 1; in Python it is an ordinary ValueError.
    """
