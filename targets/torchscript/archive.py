"""A TorchScript file from source and tensors, through torch's own loader and writer.

torch has no public way to make a class with given parameters, and its scripting
names classes by a counter of the process. So the class is written as the text
that a TorchScript archive holds, with empty tensors, loaded by `torch.jit.load`
(which compiles it), given the real tensors, and saved by `torch.jit.save`. The
file then has no line tables, no paths and no counters in it.
"""

from __future__ import annotations

import errno
import io
import json
import keyword
import struct
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ...errors import ConversionError, first_line
from ..unsupported import cannot_express, unsupported
from .source import Body

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["NAMES_FILE", "build", "save"]

NAMES_FILE = "isomorph.json"


def build(body: Body, tensors: Mapping[str, torch.Tensor], outputs: int) -> torch.jit.ScriptModule:
    """Compile `body` into a module that holds `tensors` (by qualified name), not copied.

    Raises:
        ConversionError: TorchScript does not compile it, or means another operator.
    """
    seed = _seed(_tree(body), body, outputs)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "torch.jit.load is deprecated"
            module: Any = torch.jit.load(io.BytesIO(seed), map_location="cpu")
            # Once more, because torch writes calls in its own way: what is compared below is
            # what a reader of the file will understand.
            seed = module.save_to_buffer()
            module = torch.jit.load(io.BytesIO(seed), map_location="cpu")
    except Exception as error:
        raise ConversionError(
            f"TorchScript does not compile the program: {_reason(error)}",
            hint="please report this with the model's source; -v shows torch's message",
        ) from error
    _demand_overloads(module, body)
    storages: dict[tuple[int, int], torch.Tensor] = {}
    for target in body.weights:
        *folders, name = target.split(".")
        owner = module._c
        for folder in folders:
            owner = owner.getattr(folder)
        owner.setattr(name, _exact(tensors[target], storages))
    return module  # type: ignore[no-any-return]


def save(module: torch.jit.ScriptModule, path: Path, names: Mapping[str, Any]) -> None:
    """Write `module`; `names` (JSON) lies in the file as `extra/isomorph.json`.

    Raises:
        OSError: the file cannot be written.
    """
    text = json.dumps(names, indent=1, sort_keys=True)
    # The archive's root folder is named after the file that torch is told.
    with tempfile.TemporaryDirectory(dir=path.parent) as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "torch.jit.save is deprecated"
        written = Path(folder, f"model{path.suffix}")
        try:
            torch.jit.save(module, str(written), _extra_files={NAMES_FILE: text.encode()})
        except RuntimeError as error:
            if "Writer" not in str(error):
                raise
            raise OSError(errno.EIO, first_line(error), str(path)) from error
        written.replace(path)


def _demand_overloads(module: Any, body: Body) -> None:
    """The source names operators without overloads; TorchScript must have meant the captured ones.

    Raises:
        ConversionError: names the operators for which it chose another.
    """
    missing = Counter(name for name, _ in body.overloads)
    missing.subtract(
        str(node.schema()).partition("(")[0]
        for node in _nodes(module._c._get_method("forward").graph)
        if node.kind().partition("::")[0] != "prim"
    )
    wrong = [
        unsupported(node, "TorchScript takes its arguments for another overload")
        for name, node in body.overloads
        if missing[name] > 0
    ]
    if wrong:
        raise cannot_express("TorchScript", wrong)


def _nodes(block: Any) -> Iterator[Any]:
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _nodes(inner)


def _exact(tensor: torch.Tensor, storages: dict[tuple[int, int], torch.Tensor]) -> torch.Tensor:
    """A tensor whose storage holds no more than it, since torch writes whole storages.

    Tied weights stay tied. Only a view that lies scattered in a larger storage is copied.
    """
    plain = tensor.detach().resolve_conj().resolve_neg()
    if plain.layout != torch.strided or plain.is_quantized:
        return plain
    size = plain.numel() * plain.element_size()
    if size == 0 or plain.untyped_storage().nbytes() == size:
        return plain
    if not plain.is_contiguous():
        return plain.clone(memory_format=torch.contiguous_format)
    key = (plain.data_ptr(), size)
    if key not in storages:
        storages[key] = torch.from_numpy(plain.flatten().view(torch.uint8).numpy())
    return storages[key].view(plain.dtype).view(plain.shape)


# ---------------------------------------------------------------- the class as an archive holds it


class _Folder(dict[str, Any]):
    """Attributes of one module: None for a tensor, a `_Folder` for a module within."""

    kind = ""

    def __init__(self) -> None:
        super().__init__()
        self.buffers: list[str] = []


def _tree(body: Body) -> _Folder:
    root = _Folder()
    for target in body.weights:
        *folders, name = target.split(".")
        place = root
        for folder in folders:
            found = place.setdefault(folder, _Folder())
            if found is None:
                raise ConversionError(
                    f"{folder} is both a weight and a module of weights ({target})",
                    hint="rename one of them in the model",
                )
            place = found
        place[name] = None
        if target not in body.parameters:
            place.buffers.append(name)
    _name_classes(root, "Model", set())
    return root


def _name_classes(folder: _Folder, wish: str, taken: set[str]) -> None:
    base = "".join(c if c.isascii() and c.isalnum() else "_" for c in wish)
    name, number = base, 0
    while name in taken or keyword.iskeyword(name):
        number += 1
        name = f"{base}_{number}"
    taken.add(name)
    folder.kind = name
    for child, inner in folder.items():
        if inner is not None:
            _name_classes(inner, f"{wish}_{child}", taken)


def _seed(root: _Folder, body: Body, outputs: int) -> bytes:
    lines: list[str] = []
    for folder in _inner_first(root):
        tensors = [name for name, inner in folder.items() if inner is None]
        parameters = [name for name in tensors if name not in folder.buffers]
        lines += [f"class {folder.kind}(Module):", f"  __parameters__ = {_names(parameters)}"]
        lines += [f"  __buffers__ = {_names(folder.buffers)}", "  training : bool"]
        odd = []
        for name, inner in folder.items():
            kind = "Tensor" if inner is None else f"__torch__.{inner.kind}"
            if name.isidentifier() and name.isascii() and not keyword.iskeyword(name):
                lines.append(f"  {name} : {kind}")
            else:
                odd.append(f'  __annotations__["{name}"] = {kind}')
        if odd:
            lines += ["  __annotations__ = []", *odd]
    arguments = "".join(f",\n    {name}: Tensor" for name in body.arguments)
    result = "Tensor" if outputs == 1 else f"Tuple[{', '.join(['Tensor'] * outputs)}]"
    lines.append(f"  def forward(self: __torch__.{root.kind}{arguments}) -> {result}:")
    lines += [f"    {line}" for line in body.lines]
    lines.append(f"    return {body.result}")
    file = io.BytesIO()
    writer = torch._C.PyTorchFileWriter(file)
    writer.set_min_version(torch._C._get_max_operator_version())  # else operators of old versions
    records = {
        "data.pkl": b"\x80\x02" + _pickled(root) + b".",
        "data/0": b"",
        "code/__torch__.py": "\n".join([*lines, ""]).encode(),
        "constants.pkl": b"\x80\x02).",
    }
    for name, content in records.items():
        writer.write_record(name, content, len(content))
    writer.write_end_of_file()
    return file.getvalue()


def _inner_first(folder: _Folder) -> Iterator[_Folder]:
    for inner in folder.values():
        if inner is not None:
            yield from _inner_first(inner)
    yield folder


def _names(names: list[str]) -> str:
    return "[" + "".join(f"{json.dumps(name)}, " for name in names) + "]"


def _pickled(folder: _Folder) -> bytes:
    """The opcodes of a module object: class, no arguments, a dict of attributes."""
    entries = [_text("training") + b"\x89"]
    for name, inner in folder.items():
        entries.append(_text(name) + (_EMPTY_TENSOR if inner is None else _pickled(inner)))
    made = f"c__torch__\n{folder.kind}\n".encode() + b")\x81"
    return made + b"}(" + b"".join(entries) + b"ub"


def _text(value: str) -> bytes:
    encoded = value.encode()
    return b"X" + struct.pack("<I", len(encoded)) + encoded


# torch._utils._rebuild_tensor_v2(storage 0 of no floats, 0, (0,), (1,), False, OrderedDict())
_EMPTY_TENSOR = (
    b"ctorch._utils\n_rebuild_tensor_v2\n(("
    + (_text("storage") + b"ctorch\nFloatStorage\n" + _text("0") + _text("cpu") + b"K\x00tQ")
    + b"K\x00(K\x00t(K\x01t\x89ccollections\nOrderedDict\n)RtR"
)


def _reason(error: BaseException) -> str:
    """torch's message, and the line of source that it points at."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    marked = [lines[i - 1] for i, line in enumerate(lines) if i and "<--- HERE" in line]
    return ": ".join([*lines[:1], *marked[:1]]) or type(error).__name__
