"""A TEST DOUBLE of aie.iron: the registry of core functions, and a module that prints itself."""

print("the double of aie.iron is imported")


class ExternalFunction:
    """Stores its arguments where IRON stores them."""

    _instances: set = set()

    def __init__(self, name, object_file_name=None, source_file=None, source_string=None, include_dirs=(), compile_flags=()):
        self._name = name
        self._object_file_name = object_file_name
        self._source_file = source_file
        self._source_string = source_string
        self._include_dirs = list(include_dirs)
        self._compile_flags = list(compile_flags)
        ExternalFunction._instances.add(self)

    @property
    def object_file_name(self):
        return self._object_file_name or f"{self._name}.o"


class Module:
    """Stands for the module that `Program.resolve_program` makes."""

    def __init__(self, text, valid=True):
        self._text = text
        self._valid = valid

    @property
    def operation(self):
        return self

    def verify(self):
        return self._valid

    def __str__(self):
        return self._text
