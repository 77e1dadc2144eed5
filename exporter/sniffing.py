"""What kind of file is this? Told from its first bytes, or a zip's table of contents.

Nothing here imports torch or executes anything: `isomorph inspect` and the
loader both start here, so that a download that went wrong is named as such
instead of failing deep inside an unpickler.
"""

from __future__ import annotations

import os
import shlex
import stat
import struct
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ..errors import InputFileError

__all__ = ["FileKind", "Kind", "looks_like", "remedy", "sniff", "typed"]

Kind = Literal[
    "torch_zip",
    "torch_legacy",
    "torch_tar",
    "torchscript",
    "pt2",
    "aot_package",
    "safetensors",
    "onnx",
    "pickle",
    "other",
]

MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
_LEGACY_LONG = b"\x8a\x0a" + MAGIC_NUMBER.to_bytes(10, "little")
_HEAD = 4096

_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs", "a Git LFS pointer, not the file it stands for"),
    (b"version https://hawser", "a Git LFS pointer, not the file it stands for"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file (Keras weights, usually .h5)"),
    (b"GGUF", "a GGUF file (llama.cpp weights)"),
    (b"\x93NUMPY", "a NumPy array (.npy)"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ\x00", "an xz archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"\x7fELF", "a native library or program (ELF)"),
    (b"MZ", "a Windows program or library"),
    (b"%PDF", "a PDF document"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
)
# A zip's table of contents is the last thing written.
_CUT_ZIP = "a truncated zip archive: it was cut off before its table of contents"
_REMEDIES: dict[str, str] = {
    "Git LFS": "fetch the real file: git lfs pull",
    "cut off": "the download or save was interrupted: download or save it again",
    "archive": "unpack it first",
    "web page": "the download returned a page instead of the file; download it again",
    "HDF5": "Isomorph reads PyTorch checkpoints; convert the weights to a state_dict first",
    "GGUF": "Isomorph reads PyTorch checkpoints; look for the .safetensors of this model",
    "exported": "export from the PyTorch checkpoint that it was made from",
}


@dataclass(frozen=True)
class FileKind:
    """`kind`, and in words what the file looks like; `members` of a zip, in order."""

    kind: Kind
    looks_like: str
    size: int
    members: tuple[str, ...] = field(default=(), repr=False)

    @property
    def root(self) -> str:
        """The folder that a torch archive's members lie in."""
        return self.members[0].partition("/")[0] if self.members else ""


def sniff(path: Path) -> FileKind:
    """Look at `path` without reading tensor data.

    Raises:
        InputFileError: it does not exist, is not a regular file, is empty or unreadable.
    """
    size = _size(path)
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise InputFileError(
            f"{path} cannot be read: {error.strerror or error}", hint="check its permissions"
        ) from error
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return _sniff_zip(path, size)
    kind, looks = _sniff_head(head, path, size)
    return FileKind(kind, looks, size)


def looks_like(path: Path, found: FileKind) -> InputFileError:
    """The error for a file that no loader takes: what it looks like and what to do."""
    whole = "" if found.looks_like != _CUT_ZIP else "whole "
    return InputFileError(
        f"{path} is not a {whole}PyTorch checkpoint: {found.looks_like}", hint=remedy(found)
    )


def remedy(found: FileKind) -> str:
    """What to do about a file that no loader takes."""
    return next(
        (remedy for word, remedy in _REMEDIES.items() if word in found.looks_like),
        "a checkpoint is what torch.save, torch.jit.save, torch.export.save or safetensors wrote",
    )


def _size(path: Path) -> int:
    try:
        status = path.stat()
    except FileNotFoundError as error:
        near = _neighbours(path)
        raise InputFileError(
            f"{path} does not exist",
            hint=f"in {path.parent} there is {near}" if near else "check the path",
        ) from error
    except (OSError, ValueError) as error:
        raise InputFileError(f"{path} cannot be read: {error}", hint="check the path") from error
    if stat.S_ISDIR(status.st_mode):
        near = _neighbours(path / "model.pt")
        raise InputFileError(
            f"{path} is a directory, not a checkpoint file",
            hint=f"it holds {near}: name one" if near else "name the checkpoint file inside it",
        )
    if not stat.S_ISREG(status.st_mode):
        raise InputFileError(f"{path} is not a regular file", hint="copy it to a file first")
    if status.st_size == 0:
        raise InputFileError(
            f"{path} is empty (0 bytes)", hint="the save or download was interrupted; repeat it"
        )
    return status.st_size


def typed(path: str) -> str:
    """A path as a shell and `isomorph` take it: quoted, and never like an option."""
    return shlex.quote(f"./{path}" if path.startswith("-") else path)


def _neighbours(path: Path) -> str:
    """Checkpoints in the same folder, to suggest."""
    suffixes = {".pt", ".pth", ".pt2", ".safetensors", ".ckpt", ".bin"}
    try:
        with os.scandir(path.parent) as entries:
            names = sorted(e.name for e in entries if Path(e.name).suffix in suffixes)
    except OSError:
        return ""
    return ", ".join(map(typed, names[:5])) + (", ..." if len(names) > 5 else "")


def _sniff_zip(path: Path, size: int) -> FileKind:
    try:
        with zipfile.ZipFile(path) as archive:
            members = tuple(archive.namelist())
    except (zipfile.BadZipFile, OSError, ValueError, struct.error, NotImplementedError, EOFError):
        return FileKind("other", _CUT_ZIP, size)
    inner = {member.partition("/")[2] for member in members}
    if "archive_format" in inner:
        compiled = any(name.startswith("data/aotinductor/") for name in inner)
        if compiled and not any(name.startswith("models/") for name in inner):
            return FileKind("aot_package", "an AOTInductor package (native code)", size, members)
        return FileKind("pt2", "a torch.export archive (.pt2)", size, members)
    if "serialized_exported_program.json" in members:
        return FileKind("pt2", "a torch.export archive of torch 2.7 or older", size, members)
    if "constants.pkl" in inner:
        return FileKind("torchscript", "a TorchScript archive", size, members)
    if "data.pkl" in inner:
        return FileKind("torch_zip", "a PyTorch checkpoint (torch.save)", size, members)
    if any(name.startswith("data/aotinductor/") for name in inner):
        return FileKind("aot_package", "an AOTInductor package (native code)", size, members)
    if any(name.endswith(".npy") for name in members):
        return FileKind("other", "a NumPy archive (.npz)", size, members)
    if any(name.endswith("Manifest.json") for name in members):
        return FileKind("other", "an exported Core ML package in a zip", size, members)
    shown = ", ".join(members[:4]) + (", ..." if len(members) > 4 else "")
    return FileKind("other", f"a zip archive that torch did not write (holds {shown})", size)


def _sniff_head(head: bytes, path: Path, size: int) -> tuple[Kind, str]:
    if head[:1] == b"\x80" and _LEGACY_LONG in head[:32]:
        return "torch_legacy", "a PyTorch checkpoint in the format before torch 1.6"
    if head[257:262] == b"ustar":
        return "torch_tar", "a tar archive (perhaps a checkpoint of torch 0.1)"
    if _is_safetensors(head, size):
        return "safetensors", "a safetensors file"
    for signature, looks in _SIGNATURES:
        if head.startswith(signature):
            return "other", looks
    if head[4:8] in (b"TFL3", b"ET12") or head[4:6] == b"ET":
        return "other", "an exported model (LiteRT or ExecuTorch)"
    if head[:2] == b"\x80\x02" or (head[:1] == b"\x80" and head[1:2] in b"\x03\x04\x05"):
        return "pickle", "a plain Python pickle that torch.save did not write"
    stripped = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if stripped[:1] == b"<":
        lowered = stripped[:512].lower()
        if b"<net" in lowered:
            return "other", "an exported OpenVINO model (.xml)"
        return "other", "a web page or XML text"
    if _is_onnx(head):
        return "onnx", "an exported ONNX model"
    if _is_text(head):
        first = stripped[:60].decode("utf-8", "replace").splitlines()
        return "other", f"a text file, beginning {first[0]!r}" if first else "a text file"
    if not any(head) and path.suffix != ".bin":
        return "other", "a file of zero bytes (an interrupted download?)"
    return "other", f"unknown binary data, beginning {head[:8].hex(' ')}"


def _is_safetensors(head: bytes, size: int) -> bool:
    if len(head) < 9:
        return False
    (length,) = struct.unpack("<Q", head[:8])
    return bool(head[8:9] == b"{" and 2 <= length <= size - 8)


def _is_text(head: bytes) -> bool:
    if b"\x00" in head:
        return False
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start > len(head) - 4 and len(head) == _HEAD
    return True


def _is_onnx(head: bytes) -> bool:
    """A protobuf whose first fields are ModelProto's: ir_version, then producer or graph."""
    if len(head) < 4 or head[0] != 0x08 or not 1 <= head[1] <= 30:
        return False
    return head[2] in (0x12, 0x1A, 0x3A, 0x42)
