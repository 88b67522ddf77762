"""The error that a user of a run can mend."""


class TrainingError(ValueError):
    """Training can't start or go on; the message says why and what to do."""


def check_shared(batch_size, count, sharers):
    """Raises a TrainingError unless `count` devices or processes, the `sharers` in words, can share a batch evenly."""
    if batch_size % count:
        raise TrainingError(f"--batch-size {batch_size} can't be shared evenly by {sharers}.")


def reported(function, *args):
    """Calls a function and raises its errors about the user's values as a `TrainingError`."""
    try:
        return function(*args)
    except (ValueError, FileNotFoundError) as error:
        raise TrainingError(str(error)) from error
    except ModuleNotFoundError as error:
        raise TrainingError(f"This needs the Python package {error.name}, which is not installed.") from error
