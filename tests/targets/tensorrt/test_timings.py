"""Kernel timings that are kept between builds, with a builder that only takes note."""

from __future__ import annotations

import pytest
from isomorph.errors import DestinationError, InputFileError
from isomorph.targets.tensorrt.build import build
from isomorph.targets.tensorrt.options import Settings
from isomorph.targets.tensorrt.parse import ParsedNetwork
from isomorph.targets.tensorrt.products import RTX
from isomorph.targets.tensorrt.trusted import is_own


class Cache:
    def __init__(self, kept: bytes) -> None:
        self.kept = kept

    def serialize(self) -> bytes:
        return self.kept + b"+"


class Config:
    def __init__(self, told: list[bytes], *, known: bool, fits: bool) -> None:
        self._told, self._known, self._fits = told, known, fits

    def clear_flag(self, flag: object) -> None: ...

    def set_flag(self, flag: object) -> None: ...

    def create_timing_cache(self, serialized_timing_cache: bytes) -> Cache | None:
        self._told.append(serialized_timing_cache)
        return Cache(serialized_timing_cache) if self._known else None

    def set_timing_cache(self, cache: Cache, ignore_mismatch: bool) -> bool:
        assert not ignore_mismatch, "timings of another GPU mislead"
        return self._fits


class Builder:
    def __init__(self, **how: bool) -> None:
        self.told: list[bytes] = []
        self.built = 0
        self._how = {"known": True, "fits": True, **how}

    def create_builder_config(self) -> Config:
        return Config(self.told, **self._how)

    def build_serialized_network(self, network: object, config: Config) -> bytes:
        self.built += 1
        return b"engine"


def run(builder: Builder, path, *flags: str) -> memoryview:
    parsed = ParsedNetwork(RTX, RTX.load(), builder, None, None, path)
    return build(parsed, {}, Settings(timing_cache=str(path), flags=flags))


def test_a_build_reads_what_the_one_before_has_kept(tmp_path):
    builder, path = Builder(), tmp_path / "timings"
    run(builder, path)
    run(builder, path)
    assert builder.told == [b"", b"+"]
    assert path.read_bytes() == b"++"


@pytest.mark.parametrize("how", [{"known": False}, {"fits": False}])
def test_timings_of_another_gpu_or_version_are_refused_before_the_build(tmp_path, how):
    builder, path = Builder(**how), tmp_path / "timings"
    path.write_bytes(b"other")
    with pytest.raises(InputFileError, match="no timing cache of this TensorRT and this GPU"):
        run(builder, path)
    assert (builder.built, path.read_bytes()) == (0, b"other")


def test_timings_that_cannot_be_read_or_written_are_told(tmp_path):
    with pytest.raises(InputFileError, match="cannot be read"):
        run(Builder(), tmp_path)
    with pytest.raises(DestinationError, match="cannot be written"):
        run(Builder(), tmp_path / "missing" / "timings")


def test_only_an_engine_for_several_versions_is_trusted_with_native_code(tmp_path):
    run(Builder(), tmp_path / "timings")
    assert not is_own(b"engine")
    run(Builder(), tmp_path / "timings", "VERSION_COMPATIBLE")
    assert is_own(b"engine")
    assert not is_own(b"another")
