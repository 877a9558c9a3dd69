"""The one exception tree of the codemod; each message says what, where and what to do."""


class MigrateError(Exception):
    """A file or a request that cannot be handled; the message is one sentence for the user."""


class SourceError(MigrateError):
    """The file cannot be read as Python."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line
