"""Where the user's files of this program lie, on each platform."""

from __future__ import annotations

import pytest

from advisor.places.user_folders import cache_folder, data_folder


@pytest.mark.parametrize(
    ("environment", "system", "end"),
    [
        ({"XDG_CACHE_HOME": "/caches"}, "linux", "/caches/torch-advisor"),
        ({"XDG_CACHE_HOME": "relative"}, "linux", ".cache/torch-advisor"),
        ({}, "linux", ".cache/torch-advisor"),
        ({}, "darwin", "Library/Caches/torch-advisor"),
        ({"LOCALAPPDATA": "/data"}, "win32", "/data/torch-advisor/Cache"),
    ],
)
def test_what_can_be_measured_again(environment: dict[str, str], system: str, end: str) -> None:
    assert cache_folder(environment, system).as_posix().endswith(end)


@pytest.mark.parametrize(
    ("environment", "system", "end"),
    [
        ({"XDG_DATA_HOME": "/data"}, "linux", "/data/torch-advisor"),
        ({"XDG_DATA_HOME": "data"}, "linux", ".local/share/torch-advisor"),
        ({}, "darwin", "Library/Application Support/torch-advisor"),
        ({"LOCALAPPDATA": "/local"}, "win32", "/local/torch-advisor"),
    ],
)
def test_what_is_kept(environment: dict[str, str], system: str, end: str) -> None:
    assert data_folder(environment, system).as_posix().endswith(end)
