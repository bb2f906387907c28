"""Errors of the runtime package.

RuntimePackageError
├── ModelError          a model file that is missing, damaged or of an unknown kind
└── ConfigError         settings that do not fit the model or the machine
"""


class RuntimePackageError(Exception):
    """Base of the package's errors; the message is one line that says what to do."""


class ModelError(RuntimePackageError):
    """The model cannot be loaded."""


class ConfigError(RuntimePackageError):
    """The configuration cannot work."""
