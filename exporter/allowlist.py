"""Which globals a pickle may name, judged by name alone.

A pickle can only do what the globals it names can do. Names fall into four
classes: `safe` (tensors, containers), `library` (nn.Module classes of torch.nn,
torchvision and timm), `unknown` (the user's own classes: `--allow` names them)
and `dangerous` (what runs code or reaches the system; only `--trust` loads it).
Nothing here imports torch: `isomorph inspect` uses it too.
"""

from __future__ import annotations

from typing import Literal

__all__ = [
    "PURE_FUNCTIONS",
    "REBUILD_FUNCTIONS",
    "SAFE_CLASSES",
    "WRAPPERS",
    "WRAPPER_SETTINGS",
    "Standing",
    "canonical",
    "standing",
]

Standing = Literal["safe", "library", "unknown", "dangerous"]

# What torch.save itself needs to write a tensor (torch._weights_only_unpickler lists the same).
REBUILD_FUNCTIONS = frozenset(
    f"torch._utils.{name}"
    for name in (
        "_rebuild_parameter",
        "_rebuild_parameter_with_state",
        "_rebuild_qtensor",
        "_rebuild_tensor",
        "_rebuild_tensor_v2",
        "_rebuild_tensor_v3",
        "_rebuild_sparse_tensor",
        "_rebuild_meta_tensor_no_storage",
    )
) | {"torch.serialization._get_layout", "_codecs.encode"}

# Plain data, made by calling the class.
SAFE_CLASSES = frozenset(
    {
        "builtins.bool",
        "builtins.bytearray",
        "builtins.bytes",
        "builtins.complex",
        "builtins.dict",
        "builtins.float",
        "builtins.frozenset",
        "builtins.int",
        "builtins.list",
        "builtins.object",
        "builtins.set",
        "builtins.slice",
        "builtins.str",
        "builtins.tuple",
        "collections.Counter",
        "collections.OrderedDict",
        "collections.defaultdict",
        "collections.deque",
        "copyreg._reconstructor",
        "functools.partial",
        "pathlib.Path",
        "pathlib.PosixPath",
        "pathlib.PurePath",
        "pathlib.PurePosixPath",
        "torch.Size",
        "torch.Tensor",
        "torch.device",
        "torch.nn.parameter.Buffer",
        "torch.nn.parameter.Parameter",
    }
)

# Functions of tensors without side effects that stock modules keep as attributes.
PURE_FUNCTIONS = frozenset(
    {
        *(
            f"torch.nn.functional.{name}"
            for name in (
                *("celu", "elu", "gelu", "glu", "hardsigmoid", "hardswish", "hardtanh"),
                *("leaky_relu", "log_softmax", "logsigmoid", "mish", "normalize", "relu", "relu6"),
                *("selu", "sigmoid", "silu", "softmax", "softplus", "softsign", "tanh"),
                *("tanhshrink", "pairwise_distance", "cosine_similarity"),
            )
        ),
        *(f"torch._C._nn.{name}" for name in ("gelu", "hardtanh", "leaky_relu", "softplus")),
        *(f"torch._C._VariableFunctions.{name}" for name in ("relu", "sigmoid", "tanh", "selu")),
        *(f"torch.{name}" for name in ("relu", "sigmoid", "tanh", "softmax", "selu", "abs")),
        "torchvision.models.optical_flow.raft._pass_through_h",
        "torchvision.ops.boxes.box_iou",
    }
)

_LIBRARIES = (
    "torch.nn.modules.",
    "torchvision.models.",
    "torchvision.ops.",
    "torchvision.transforms._presets",
    "timm.models.",
    "timm.layers.",
)

# Modules that hold the trained one as `.module`; loading takes it out. DistributedDataParallel
# cannot be remade without a process group, so none of these is: a bare Module stands in.
WRAPPERS = frozenset(
    {
        "torch.nn.parallel.data_parallel.DataParallel",
        "torch.nn.parallel.distributed.DistributedDataParallel",
        "torch.optim.swa_utils.AveragedModel",
    }
)
# What a wrapper keeps beside it; never made.
WRAPPER_SETTINGS = frozenset(
    {
        "torch.distributed.algorithms.join._JoinConfig",
        "torch.nn.parallel.distributed._BucketCapacityConfig",
        "torch.nn.parallel.distributed._MixedPrecision",
    }
)

_DANGEROUS_ROOTS = frozenset(
    {
        *("__builtin__", "_io", "_pickle", "_posixsubprocess", "_thread", "aifc", "antigravity"),
        *("ast", "asyncio", "atexit", "bdb", "builtins", "cffi", "cloudpickle", "code", "codecs"),
        *("codeop", "commands", "concurrent", "copyreg", "cProfile", "ctypes", "dill", "distutils"),
        *("doctest", "ensurepip", "functools", "gc", "glob", "http", "idlelib", "imp", "importlib"),
        *("inspect", "io", "itertools", "joblib", "lib2to3", "linecache", "logging", "marshal"),
        *("mmap", "multiprocessing", "nt", "ntpath", "numpy.f2py", "numpy.testing", "operator"),
        *("os", "pdb", "pickle", "pip", "pkgutil", "platform", "posix", "posixpath", "pprint"),
        *("profile", "pty", "py_compile", "pydoc", "requests", "resource", "runpy", "setuptools"),
        *("shelve", "shutil", "signal", "site", "smtplib", "socket", "socketserver", "sqlite3"),
        *("ssl", "subprocess", "sys", "sysconfig", "tempfile", "test", "threading", "timeit"),
        *("trace", "turtle", "types", "typing", "unittest", "urllib", "uuid", "venv", "webbrowser"),
        *("weakref", "wsgiref", "xmlrpc", "zipfile", "zipimport"),
    }
)
# Parts of torch and its friends that load, compile or run code.
_DANGEROUS_PACKAGES = (
    *("torch._C", "torch._dynamo", "torch._export", "torch._inductor", "torch._jit_internal"),
    *("torch._library", "torch._ops", "torch._utils", "torch._weights_only_unpickler"),
    *("torch.classes", "torch.compiler", "torch.cuda", "torch.distributed", "torch.export"),
    *("torch.functional", "torch.fx", "torch.hub", "torch.jit", "torch.library"),
    *("torch.multiprocessing", "torch.nn.functional", "torch.onnx", "torch.ops", "torch.package"),
    *("torch.serialization", "torch.storage", "torch.testing", "torch.utils"),
    *("torchvision.datasets", "torchvision.io", "torch.ao"),
    # A GraphModule's subclass: its code is compiled from text in the pickle.
    "torchvision.models.feature_extraction",
)

# What Python 2 called these (pickle protocol 2 still writes the old names).
_OLD_MODULES = {
    "__builtin__": "builtins",
    "copy_reg": "copyreg",
    "cPickle": "pickle",
    "UserDict": "collections",
}


def canonical(module: str, name: str) -> str:
    """`module.name` under the module's present name."""
    module = _OLD_MODULES.get(module, module)
    if module == "torch.tensor":  # renamed in torch 1.8
        module = "torch._tensor"
    return f"{module}.{name}"


def standing(module: str, name: str) -> Standing:
    """How a global that a pickle names is treated when neither allowed nor trusted."""
    qualified = canonical(module, name)
    if qualified in SAFE_CLASSES or qualified in REBUILD_FUNCTIONS or qualified in PURE_FUNCTIONS:
        return "safe"
    if qualified in WRAPPERS or qualified in WRAPPER_SETTINGS:
        return "library"
    module = qualified[: -len(name) - 1]
    if module in ("torch", "torch.cuda") and _is_storage_or_dtype(name):
        return "safe"
    if module == "torch.storage" and name in ("UntypedStorage", "TypedStorage"):
        return "safe"
    if any(module == p or module.startswith(f"{p}.") for p in _DANGEROUS_PACKAGES):
        return "dangerous"
    if module.startswith(_LIBRARIES) or f"{module}." in _LIBRARIES:
        return "library" if _is_class_name(name) else "dangerous"
    root = module.partition(".")[0]
    if root in _DANGEROUS_ROOTS or module == "torch":
        return "dangerous"
    if not all(part.isidentifier() for part in qualified.split(".")):
        return "dangerous"
    return "unknown"


_DTYPES = frozenset(
    {
        *("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64"),
        *("uint8", "uint16", "uint32", "uint64", "bool", "complex32", "complex64", "complex128"),
        *("qint8", "quint8", "qint32", "quint4x2", "quint2x4", "float", "double", "half", "long"),
        *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
        *("contiguous_format", "preserve_format", "channels_last", "channels_last_3d", "strided"),
        *("per_tensor_affine", "per_tensor_symmetric", "per_channel_affine"),
        *("per_channel_symmetric", "per_channel_affine_float_qparams", "int", "short"),
    }
)


def _is_storage_or_dtype(name: str) -> bool:
    return name in _DTYPES or (name.endswith("Storage") and name.isidentifier())


def _is_class_name(name: str) -> bool:
    return all(part.isidentifier() and part.lstrip("_")[:1].isupper() for part in name.split("."))
