"""Which mapping in a file is the state_dict of a module, and how its keys translate.

Training code wraps: dicts around the state_dict, `module.` from DataParallel,
`_orig_mod.` from torch.compile, `model.` from Lightning. A candidate is chosen
by how much of the module it fits, not by its name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

__all__ = [
    "Candidate",
    "Fit",
    "Shapes",
    "best_fits",
    "candidates",
    "describe_entries",
    "no_weight",
]

Shapes = Mapping[str, tuple[int, ...]]

_PREFERRED = (
    *("state_dict", "model_state_dict", "model", "net", "network", "weights", "params", "module"),
    *("ema", "model_ema", "ema_model", "state_dict_ema", "ema_state_dict", "params_ema"),
)
_WRAPPERS = (
    "_orig_mod",
    "module",
    "_forward_module",
    "_fsdp_wrapped_module",
    "_checkpoint_wrapped_module",
)
_DEPTH = 5


@dataclass(frozen=True)
class Candidate:
    """A mapping of names to tensors found at `path` in the file (`()`: the file itself)."""

    path: tuple[str, ...]
    tensors: Mapping[str, torch.Tensor]

    @property
    def where(self) -> str:
        return ".".join(self.path)


@dataclass(frozen=True)
class Fit:
    """How a candidate fits a module after renaming.

    `renamed` maps the module's keys to the file's, `unexpected` the keys that the
    module lacks likewise. `outside` are the file's keys that lie outside a stripped
    prefix, so belong to another module (a loss, say).
    """

    candidate: Candidate
    prefix: str
    renamed: Mapping[str, str]
    missing: tuple[str, ...]
    unexpected: Mapping[str, str]
    misshaped: tuple[str, ...]
    outside: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        return not (self.missing or self.unexpected or self.misshaped)

    @property
    def score(self) -> tuple[bool, int, int]:
        good = len(self.renamed) - len(self.misshaped)
        return (self.complete, good, -len(self.missing) - len(self.unexpected))


def no_weight(tensor: torch.Tensor) -> str | None:
    """Why a tensor cannot be a weight, such as "a sparse tensor (sparse_coo)"; None if it can."""
    if tensor.is_meta:
        return "a tensor without values (on the meta device)"
    if tensor.is_nested:
        return "a nested tensor"
    if tensor.is_quantized:
        return f"a quantized tensor ({str(tensor.dtype).removeprefix('torch.')})"
    if tensor.layout is not torch.strided:
        layout = str(tensor.layout).removeprefix("torch.")
        return f"a {'sparse ' if 'sparse' in layout else ''}tensor ({layout})"
    return None


def _shape_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """The shape; `()` for a nested tensor, which has none."""
    return () if tensor.is_nested else tuple(tensor.shape)


def candidates(root: Any) -> list[Candidate]:
    """Every mapping in `root` that is mostly tensors, best-named first.

    Raises:
        ValueError, TypeError, AttributeError: a pickled module in it is malformed.
    """
    found = list(_search(root, (), set()))
    return sorted(found, key=lambda c: (_rank(c.path), len(c.path)))


def _rank(path: tuple[str, ...]) -> int:
    if not path:
        return 0
    ranks = [_PREFERRED.index(part) for part in path if part in _PREFERRED]
    return 1 + (max(ranks) if ranks else len(_PREFERRED))


def _search(value: Any, path: tuple[str, ...], seen: set[int]) -> Iterator[Candidate]:
    if id(value) in seen or len(path) > _DEPTH:
        return
    seen.add(id(value))
    if isinstance(value, torch.nn.Module):
        yield Candidate(path, _state_of(value))
        return
    children = _children(value)
    tensors = {k: v for k, v in children.items() if isinstance(v, torch.Tensor)}
    if tensors and 2 * len(tensors) > len(children) and "exp_avg" not in tensors:
        kept = _Renamed(tensors)
        kept._metadata = getattr(value, "_metadata", None)
        yield Candidate(path, kept)
    for key, child in children.items():
        if not isinstance(child, torch.Tensor):
            yield from _search(child, (*path, key), seen)


def _state_of(module: torch.nn.Module) -> Mapping[str, torch.Tensor]:
    if not {"_parameters", "_modules"} <= vars(module).keys():
        raise ValueError(f"its {type(module).__name__} was saved without its attributes")
    try:
        state: Mapping[str, torch.Tensor] = module.state_dict()
    except AttributeError:  # holds an object of a class that was not admitted
        return dict(module_tensors(vars(module)))
    return state


class _Renamed(dict[str, torch.Tensor]):
    """A state_dict with the version metadata that torch keeps as an attribute."""

    _metadata: Any = None


def _children(value: Any) -> dict[str, Any]:
    """Named contents of a mapping, or of an object that unpickling did not admit."""
    if isinstance(value, Mapping):
        return {key: item for key, item in value.items() if isinstance(key, str)}
    state = getattr(value, "state", None)
    if getattr(value, "origin", "") and isinstance(state, Mapping):
        if "_parameters" in state and "_modules" in state:
            return dict(module_tensors(state))
        return {key: item for key, item in state.items() if isinstance(key, str)}
    return {}


def module_tensors(
    state: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and persistent buffers of a pickled module's `__dict__`, by qualified name."""
    transient = state.get("_non_persistent_buffers_set") or ()
    for kind in ("_parameters", "_buffers"):
        for name, tensor in (state.get(kind) or {}).items():
            if isinstance(tensor, torch.Tensor) and not (kind == "_buffers" and name in transient):
                yield prefix + name, tensor
    for name, child in (state.get("_modules") or {}).items():
        inner = vars(child) if isinstance(child, torch.nn.Module) else getattr(child, "state", None)
        if isinstance(inner, Mapping):
            yield from module_tensors(inner, f"{prefix}{name}.")


def best_fits(found: list[Candidate], expected: Shapes) -> list[Fit]:
    """Each candidate under the renaming that fits `expected` (key -> shape) best; best first."""
    fits = [max(_fits(one, expected), key=lambda fit: fit.score) for one in found]
    return sorted(fits, key=lambda fit: fit.score, reverse=True)


def _fits(candidate: Candidate, expected: Shapes) -> Iterator[Fit]:
    keys = {key: key for key in candidate.tensors}
    yield _compare(candidate, expected, keys, "")
    plain = {_unwrapped(key, expected): key for key in keys}
    if len(plain) == len(keys):
        keys = plain
        yield _compare(candidate, expected, keys, "")
    for prefix in _prefixes(keys, expected):
        inside = {key[len(prefix) :]: old for key, old in keys.items() if key.startswith(prefix)}
        outside = tuple(key for key in keys if not key.startswith(prefix))
        yield _compare(candidate, expected, inside, prefix, outside)
    added = _common_prefix(expected)
    if added:
        yield _compare(candidate, expected, {added + key: old for key, old in keys.items()}, "")


def _unwrapped(key: str, expected: Shapes) -> str:
    """`key` without the components that wrappers insert, unless the module has it so."""
    if key in expected:
        return key
    return ".".join(part for part in key.split(".") if part not in _WRAPPERS)


def _prefixes(keys: Mapping[str, str], expected: Shapes) -> list[str]:
    """Prefixes under which most of the file's keys become the module's."""
    votes: Counter[str] = Counter()
    for key in keys:
        head, _, rest = key.partition(".")
        prefix = ""
        while rest:
            prefix += head + "."
            if rest in expected:
                votes[prefix] += 1
            head, _, rest = rest.partition(".")
    return [prefix for prefix, _ in votes.most_common(3)]


def _common_prefix(expected: Shapes) -> str:
    heads = {key.partition(".")[0] for key in expected if "." in key}
    whole = len(heads) == 1 and all("." in key for key in expected)
    return next(iter(heads)) + "." if whole else ""


def _compare(
    candidate: Candidate,
    expected: Shapes,
    keys: Mapping[str, str],
    prefix: str,
    outside: tuple[str, ...] = (),
) -> Fit:
    keys = _weight_norm(keys, expected)
    renamed = {key: keys[key] for key in expected if key in keys}
    misshaped = tuple(
        key
        for key, old in renamed.items()
        if not _same_shape(_shape_of(candidate.tensors[old]), expected[key])
    )
    missing = tuple(key for key in expected if key not in keys)
    unexpected = {key: old for key, old in keys.items() if key not in expected}
    return Fit(candidate, prefix, renamed, missing, unexpected, misshaped, outside)


def _same_shape(found: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    return found == wanted or (wanted == () and found == (1,))


def _weight_norm(keys: Mapping[str, str], expected: Shapes) -> Mapping[str, str]:
    """Translate between `weight_g`, `weight_v` and `parametrizations.weight.original0, 1`."""
    result: dict[str, str] = {}
    for key, old in keys.items():
        result[key if key in expected else _other_norm_name(key, expected)] = old
    return result


def _other_norm_name(key: str, expected: Shapes) -> str:
    front, _, last = key.rpartition(".")
    front = f"{front}." if front else ""
    name, _, letter = last.rpartition("_")
    if letter in ("g", "v") and name:
        new = f"{front}parametrizations.{name}.original{'gv'.index(letter)}"
        return new if new in expected else key
    if last in ("original0", "original1") and ".parametrizations." in f".{front}":
        owner, _, name = front.rstrip(".").rpartition("parametrizations.")
        old = f"{owner}{name}_{'gv'[int(last[-1])]}"
        return old if old in expected else key
    return key


def describe_entries(root: Any, limit: int = 4) -> str:
    """What a loaded file holds, in a line."""
    found = candidates(root)
    if not found:
        kind = type(root).__name__
        keys = ", ".join(map(str, list(root)[:6])) if isinstance(root, Mapping) else ""
        return f"a {kind} without tensors" + (f" (keys {keys})" if keys else "")
    best = max(found, key=lambda c: len(c.tensors))
    shown = ", ".join(
        f"{name} {'x'.join(map(str, _shape_of(tensor))) or 'scalar'}"
        for name, tensor in list(best.tensors.items())[:limit]
    )
    more = ", ..." if len(best.tensors) > limit else ""
    place = f" under {best.where!r}" if best.path else ""
    return f"a state_dict of {len(best.tensors)} tensors{place} ({shown}{more})"
