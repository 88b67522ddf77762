"""The error that a user of a run can mend."""


class TrainingError(ValueError):
    """Training can't start or go on; the message says why and what to do."""


def reported(function, *args):
    """Calls a function and raises its errors about the user's values as a `TrainingError`."""
    try:
        return function(*args)
    except (ValueError, FileNotFoundError) as error:
        raise TrainingError(str(error)) from error
    except ModuleNotFoundError as error:
        raise TrainingError(f"This needs the Python package {error.name}, which is not installed.") from error
