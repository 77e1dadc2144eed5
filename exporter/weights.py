"""Put a file's tensors into a module without copying them.

The module is built on the meta device, so that its own initial weights never
exist, and the file's tensors (often views on the mapped file) take their
places. What the file does not hold, such as buffers computed in `__init__`,
would be lost that way: where any meta tensor is left, the module is built again
on the CPU.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn

from ..errors import InputFileError
from .matching import Candidate, Fit, best_fits, no_weight
from .randomness import RandomTracker, redrawn

__all__ = ["Filled", "fill", "require_values"]

_SHOWN = 8
_EXCUSED = "num_batches_tracked"


class Builder(Protocol):
    """Builds a module on "cpu" or "meta"; `seed` is the random generator's."""

    def __call__(self, device: str, *, seed: int = 0) -> nn.Module: ...


@dataclass(frozen=True)
class Filled:
    """A module that holds the file's weights, and what was done to get there."""

    module: nn.Module
    notes: tuple[str, ...]


def fill(build: Builder, found: list[Candidate], *, source: str, spec: str) -> Filled:
    """Build a module and give it the weights of the candidate that fits it best.

    Args:
        build: makes the module on the device it is given ("meta" or "cpu"), under `seed`.
        found: state_dicts from the file, most likely first.
        source, spec: the file and the architecture, for messages.

    Raises:
        InputFileError: no candidate fits (lists missing, unexpected and mis-shaped keys),
            or values drawn at random are not in the file.
        UsageError: the factory raises on the CPU too.
    """
    before = _meta_tensors()
    module = _build_on_meta(build)
    if module is not None:
        filled = _fill(module, found, source, spec)
        del module
        if not _left_on_meta(before):
            return filled
    return _fill_on_cpu(build, found, source, spec)


def _fill_on_cpu(build: Builder, found: list[Candidate], source: str, spec: str) -> Filled:
    with RandomTracker() as tracker:
        module = build("cpu")
    filled = _fill(module, found, source, spec)
    lost = redrawn(module, tracker, lambda: build("cpu", seed=1))
    if lost:
        raise InputFileError(
            f"{source} does not hold {', '.join(lost[:_SHOWN])}, which {spec} draws at random "
            "when it is built: the trained values are lost",
            hint="make them persistent buffers and save again, or seed the generator in the code",
        )
    return filled


def _build_on_meta(build: Builder) -> nn.Module | None:
    """The module without memory, or None where its code cannot be built so."""
    try:
        return build("meta")
    except Exception:  # noqa: BLE001 - whatever it is, the CPU build decides
        return None


def _meta_tensors() -> list[torch.Tensor]:
    """All meta tensors alive in the process, wherever they are held.

    Tensors hide in lists, closures, partials and caches, where no walk over
    modules finds them; the garbage collector knows every one.
    """
    return [
        value
        for value in gc.get_objects()
        if issubclass(type(value), torch.Tensor) and value.is_meta
    ]


def _left_on_meta(before: list[torch.Tensor]) -> bool:
    known = {id(tensor) for tensor in before}
    if all(id(tensor) in known for tensor in _meta_tensors()):
        return False
    gc.collect()
    return any(id(tensor) not in known for tensor in _meta_tensors())


def _fill(module: nn.Module, found: list[Candidate], source: str, spec: str) -> Filled:
    expected = {
        key: tuple(value.shape)
        for key, value in module.state_dict(keep_vars=True).items()
        if isinstance(value, torch.Tensor) and not nn.parameter.is_lazy(value)
    }
    fit, *others = best_fits(found, expected)
    groups = _tied(module)
    state, notes = _state(fit, module, source)
    notes += [
        f"entry '{other.candidate.where}' fits too and was not taken; save it by itself to use it"
        for other in others
        if other.complete
    ]
    try:
        missing, unexpected = module.load_state_dict(state, strict=False, assign=True)
    except RuntimeError as error:
        if not fit.complete:
            raise _does_not_fit(fit, expected, source, spec) from error
        raise InputFileError(
            f"{source} does not load into {spec}: {error}", hint="is this the right architecture?"
        ) from error
    missing = [key for key in missing if not _in_group(key, groups, state)]
    excused = [key for key in missing if key.endswith(_EXCUSED)]
    if [key for key in missing if key not in excused] or unexpected:
        raise _does_not_fit(fit, expected, source, spec)
    if excused:
        _zero_counters(module, excused)
        notes.append(f"{len(excused)} num_batches_tracked counters are not in the file; set to 0")
    _retie(module, groups, state, source)
    return Filled(module, tuple(notes))


def _state(fit: Fit, module: nn.Module, source: str) -> tuple[dict[str, torch.Tensor], list[str]]:
    """The file's tensors under the module's keys, in the module's dtypes."""
    tensors = fit.candidate.tensors
    own = module.state_dict(keep_vars=True)
    state = _State({key: tensors[old] for key, old in fit.renamed.items()})
    # Hooks of the module may know what to do with keys that it does not list itself.
    state.update({key: tensors[old] for key, old in fit.unexpected.items()})
    require_values(state, source)
    versions = getattr(tensors, "_metadata", None)
    if versions is not None:
        state._metadata = {
            _owner(key): versions[_owner(old)]
            for key, old in fit.renamed.items()
            if _owner(old) in versions
        }
    notes = []
    if fit.candidate.path:
        notes.append(f"took entry '{fit.candidate.where}' of the file")
    if fit.prefix:
        notes.append(f"stripped the prefix '{fit.prefix}' from the keys")
    if fit.outside:
        notes.append(f"left out {len(fit.outside)} tensors outside '{fit.prefix}'")
    notes += _convert(state, own, source)
    return state, notes


class _State(dict[str, torch.Tensor]):
    """A state_dict with torch's version metadata."""

    _metadata: Any = None

    def copy(self) -> _State:
        result = _State(self)
        result._metadata = self._metadata
        return result


def _convert(
    state: dict[str, torch.Tensor], own: Mapping[str, torch.Tensor], source: str
) -> list[str]:
    """Give each tensor the module's dtype: the float32 reference must be able to run."""
    converted: dict[str, int] = {}
    for key, tensor in state.items():
        wanted = own[key].dtype if key in own else tensor.dtype
        if tensor.dtype == wanted or not isinstance(own.get(key), torch.Tensor):
            continue
        result = _cast(tensor, wanted, parameter=isinstance(own[key], nn.Parameter))
        if result is None:
            raise InputFileError(
                f"{source}: {key} is {_dtype(tensor.dtype)} where the module has {_dtype(wanted)}",
                hint="is this the right architecture? Quantized weights must be multiplied by "
                "their scales before they are saved",
            )
        state[key] = result
        pair = f"{_dtype(tensor.dtype)} to {_dtype(wanted)}"
        converted[pair] = converted.get(pair, 0) + 1
    return [
        f"converted {n} tensors from {pair}, the module's dtype" for pair, n in converted.items()
    ]


def _cast(tensor: torch.Tensor, wanted: torch.dtype, *, parameter: bool) -> torch.Tensor | None:
    """The tensor in another dtype, or None where the values would not mean the same.

    Floats may round, nothing else may change. Floats of one byte and integers are
    quantized weights, whose scale is elsewhere.
    """
    inexact = wanted.is_floating_point or wanted.is_complex
    if tensor.is_complex():
        return tensor.to(wanted) if wanted.is_complex else None
    if tensor.is_floating_point() and inexact:
        result = tensor.to(wanted)
        whole = min(tensor.element_size(), result.element_size()) > 1
        return result if whole and torch.equal(tensor.isfinite(), result.isfinite()) else None
    if inexact and (parameter or tensor.element_size() == 1):
        return None
    result = tensor.to(wanted)
    return result if torch.equal(result.to(tensor.dtype), tensor) else None


def require_values(tensors: Mapping[str, torch.Tensor], source: str) -> None:
    """Refuse tensors that cannot be weights.

    Raises:
        InputFileError: one is sparse, nested, quantized, or without values; it is named.
    """
    for key, tensor in tensors.items():
        if isinstance(tensor, torch.Tensor) and not nn.parameter.is_lazy(tensor):
            why = no_weight(tensor)
            if why is not None:
                raise InputFileError(
                    f"{source}: {key} is {why}, which no target can take as a weight",
                    hint="save it as a dense tensor with values (dequantize(), to_dense())",
                )


def _owner(key: str) -> str:
    return key.rpartition(".")[0]


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _tied(module: nn.Module) -> list[list[str]]:
    """Names that share one parameter or buffer."""
    names: dict[int, list[str]] = {}
    for name, tensor in (
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ):
        names.setdefault(id(tensor), []).append(name)
    return [group for group in names.values() if len(group) > 1]


def _in_group(key: str, groups: Iterable[list[str]], state: Mapping[str, Any]) -> bool:
    """Whether a missing key is tied to one that the file holds."""
    return any(key in group and any(name in state for name in group) for group in groups)


def _retie(
    module: nn.Module, groups: list[list[str]], state: Mapping[str, torch.Tensor], source: str
) -> None:
    """Let tied names share one tensor again; `assign` gave each its own."""
    for group in groups:
        present = [name for name in group if name in state]
        if not present:
            continue
        first = present[0]
        for name in present[1:]:
            if not _same_values(state[first], state[name]):
                raise InputFileError(
                    f"{source} holds different values for {first} and {name}, which the "
                    "architecture ties together",
                    hint="build the architecture without tied weights",
                )
        shared = _get(module, first)
        for name in group:
            _set(module, name, shared)


def _same_values(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.data_ptr() == other.data_ptr() and one.stride() == other.stride():
        return one.shape == other.shape
    return torch.equal(one, other)


def _get(module: nn.Module, name: str) -> torch.Tensor:
    owner, _, leaf = name.rpartition(".")
    found: torch.Tensor = getattr(module.get_submodule(owner), leaf)
    return found


def _set(module: nn.Module, name: str, value: torch.Tensor) -> None:
    owner_name, _, leaf = name.rpartition(".")
    owner = module.get_submodule(owner_name)
    store = owner._parameters if leaf in owner._parameters else owner._buffers
    store[leaf] = value  # type: ignore[assignment]


def _zero_counters(module: nn.Module, names: list[str]) -> None:
    for name in names:
        _set(module, name, torch.tensor(0, dtype=torch.long))


def _does_not_fit(
    fit: Fit, expected: Mapping[str, tuple[int, ...]], source: str, spec: str
) -> InputFileError:
    """The error that says which keys do not fit, and why that probably is."""
    tensors = fit.candidate.tensors
    place = f" (entry '{fit.candidate.where}')" if fit.candidate.path else ""
    good = len(fit.renamed) - len(fit.misshaped)
    parts = [f"{source}{place} does not fit {spec}: {good} of {len(expected)} tensors match"]
    parts += _listing("missing", [f"{k} {_shape(expected[k])}" for k in fit.missing])
    parts += _listing(
        "unexpected",
        [f"{k} {_shape(tuple(tensors[old].shape))}" for k, old in fit.unexpected.items()],
    )
    parts += _listing(
        "mis-shaped",
        [
            f"{k} {_shape(tuple(tensors[fit.renamed[k]].shape))} in the file, "
            f"{_shape(expected[k])} in the model"
            for k in fit.misshaped
        ],
    )
    return InputFileError("\n".join(parts), hint=_likely_cause(fit, expected, spec))


def _listing(title: str, lines: list[str]) -> list[str]:
    if not lines:
        return []
    more = [f"    ... and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return [f"  {len(lines)} {title}:", *(f"    {line}" for line in lines[:_SHOWN]), *more]


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _likely_cause(fit: Fit, expected: Mapping[str, tuple[int, ...]], spec: str) -> str:
    if not fit.renamed:
        return "no key matches: a wrong architecture, or keys under another prefix"
    if not fit.missing and not fit.unexpected:
        classes = _class_counts(fit, expected)
        if classes is not None:
            return (
                f"the checkpoint's last layer has {classes[0]} outputs, the architecture's "
                f"{classes[1]}: try {_with_classes(spec, classes[0])}"
            )
        return "the same layers with other sizes: give the architecture the checkpoint's arguments"
    if len(fit.renamed) * 2 < len(expected):
        return "probably another architecture: fewer than half of its keys are in the file"
    return "probably another variant of this architecture, or other arguments to it"


def _class_counts(fit: Fit, expected: Mapping[str, tuple[int, ...]]) -> tuple[int, int] | None:
    """(file's, model's) outputs where only the first axis of heads differs."""
    counts = set()
    for key in fit.misshaped:
        found = tuple(fit.candidate.tensors[fit.renamed[key]].shape)
        if found[1:] != expected[key][1:] or len(found) != len(expected[key]) or not found:
            return None
        counts.add((found[0], expected[key][0]))
    return next(iter(counts)) if len(counts) == 1 else None


def _with_classes(spec: str, classes: int) -> str:
    head, brace, rest = spec.partition("(")
    inner = rest.rstrip(")").strip() if brace else ""
    joined = f"{inner}, num_classes={classes}" if inner else f"num_classes={classes}"
    return f'--model "{head}({joined})"'
