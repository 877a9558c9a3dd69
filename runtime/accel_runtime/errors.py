"""The one exception tree of the runtime; each message says what, where and what to do."""


class AccelError(Exception):
    """Something the runtime refuses to do; the message is one or two sentences for the user."""


class ConfigError(AccelError, ValueError):
    """An argument, flag, environment variable or config key with an impossible value."""


class WorldError(AccelError, RuntimeError):
    """The processes of this run do not form the world they were launched as."""


class UsageError(AccelError, RuntimeError):
    """A call that cannot do what it says: an object that was not prepared, a collective with unequal shapes."""


class CheckpointError(AccelError, RuntimeError):
    """A checkpoint that is missing, damaged or of another model. Nothing was changed when it is raised."""


class ProcessFailed(AccelError, RuntimeError):
    """A process that was started from here ended with an error; the message carries its traceback."""
