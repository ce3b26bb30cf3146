"""phonograd: training on the phone itself, as a Python API. `phonograd docs python` tells it in one page.

`__init__.pyi` lists the names. Each is loaded when it is first used, so that `import phonograd` takes neither NumPy nor
torch.
"""

from importlib import import_module

__version__ = "0.1.0"


def _modules():
    """The module of each name, from the lines `from MODULE import NAME as NAME` of the stub."""
    with open(__path__[0] + "/__init__.pyi", encoding="utf-8") as stub:  # noqa: PTH123 - pathlib takes long to import
        lines = [line.split() for line in stub]
    return {words[3]: words[1] for words in lines if words[:1] == ["from"]}


def __dir__():
    return sorted({*globals(), "__all__", *_modules()})


def __getattr__(name):
    modules = _modules()
    if name == "__all__":
        value = sorted(modules)
    elif name in modules:
        value = getattr(import_module(modules[name]), name)
    else:
        raise AttributeError(f"module 'phonograd' has no attribute {name!r}")
    globals()[name] = value
    return value
