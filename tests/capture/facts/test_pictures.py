"""What Pillow decodes while samples are read: sizes, times and lines, in the loop's own process and in workers."""

from __future__ import annotations

import inspect
import io
import os
from typing import Any

import pytest

pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")
ImageEnhance = pytest.importorskip("PIL.ImageEnhance")
pytestmark = pytest.mark.torch

from torch.utils.data import DataLoader, Dataset  # noqa: E402

from advisor.capture.inside.facts.data.workers import Board  # noqa: E402
from advisor.capture.inside.guards import hooks  # noqa: E402


def written(form: str, size: tuple[int, int]) -> bytes:
    file = io.BytesIO()
    Image.effect_noise(size, 60).convert("RGB").save(file, form)
    return file.getvalue()


class Photographs(Dataset[Any]):
    def __init__(self, how: str, form: str = "JPEG") -> None:
        self.how, self.file = how, written(form, (320, 240))

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> int:
        picture = Image.open(io.BytesIO(self.file))
        if self.how == "draft":
            picture.draft("RGB", (40, 30))
        picture = picture.convert("RGB")
        if self.how == "crop":
            return int(picture.crop((10, 10, 50, 40)).size[0])
        return int(picture.resize((40, 30)).size[0])


class Pairs(Photographs):
    """A picture and its mask."""

    def __getitem__(self, index: int) -> int:
        mask = Image.open(io.BytesIO(MASK))
        made = super().__getitem__(index)
        return made + int(mask.resize((160, 120)).size[0])


class Coloured(Photographs):
    """Colours that torchvision changes before or after a crop."""

    def __init__(self, first: str) -> None:
        super().__init__("")
        transforms = pytest.importorskip("torchvision.transforms")
        jitter, crop = transforms.ColorJitter(0.4, 0.4, 0.3, 0.1), transforms.RandomCrop((30, 40))
        self.transform = transforms.Compose([jitter, crop] if first == "colours" else [crop, jitter])

    def __getitem__(self, index: int) -> int:
        return int(self.transform(Image.open(io.BytesIO(self.file)).convert("RGB")).size[0])


class Drawn(Photographs):
    """Resized to another size each time, or a part of it, or after its colours were changed."""

    def __getitem__(self, index: int) -> int:
        picture = Image.open(io.BytesIO(self.file)).convert("RGB")
        if self.how == "part":
            return int(picture.resize((40, 30), box=(index, 0, index + 300, 240)).size[0])
        if self.how == "after":
            return int(ImageEnhance.Color(picture).enhance(0.5).resize((40, 30)).size[0])
        return int(picture.resize((40 + index, 30)).size[0])


class Enhanced(Photographs):
    """Colours that the script changes itself, before it resizes."""

    def __getitem__(self, index: int) -> int:
        picture = Image.open(io.BytesIO(self.file)).convert("RGB")
        picture = ImageEnhance.Color(picture).enhance(0.5)
        return int(picture.resize((160, 120)).size[0])


MASK = written("PNG", (320, 240))


@pytest.fixture
def board() -> Any:
    made = Board()
    made.prepare()
    placed = hooks.watch_fetchers(made.begun, made.fetched)
    forked = [made.in_child]
    os.register_at_fork(after_in_child=lambda: [one() for one in forked])
    yield made
    forked.clear()
    made.pictures.leave()
    for undo in placed:
        undo()


def seen(board: Board, dataset: Dataset[Any], workers: int = 0) -> list[dict[str, Any]]:
    for _ in DataLoader(dataset, 4, num_workers=workers):
        board.delivered()
    return board.pictures.record()


@pytest.mark.parametrize("workers", [0, 2])
def test_sizes_line_and_share_of_pictures_that_are_made_smaller(board, workers):
    (found,) = seen(board, Photographs("resize"), workers)
    assert (found["format"], found["width"], found["height"]) == ("JPEG", 320, 240)
    assert found["times_smaller"] == 8.0
    assert found["place"]["function"] == "__getitem__"
    assert 0 < found["share"] <= 1
    assert found["decode_us"] > 0
    assert found["smaller_us"] > 0
    assert found["bytes"] > 1000


def test_a_picture_and_its_mask_are_two_kinds(board):
    kinds = {one["format"]: one["times_smaller"] for one in seen(board, Pairs("resize"))}
    assert kinds == {"JPEG": 8.0, "PNG": 2.0}


@pytest.mark.parametrize("workers", [0, 2])
def test_work_on_whole_pictures_is_timed_by_who_asked_for_it(board, workers):
    (found,) = seen(board, Coloured("colours"), workers)
    assert found["large_by"] == "ColorJitter"
    assert found["large_at"]["function"] == "__getitem__"
    assert found["kept"] == pytest.approx(1 / 64, abs=1e-4)
    assert found["large_us"] > 0


def test_work_on_what_was_cut_out_of_a_picture_is_none_on_the_whole(board):
    (found,) = seen(board, Coloured("crop"))
    assert found["large_us"] == 0.0


def test_work_that_a_line_of_the_script_asks_for(board):
    (found,) = seen(board, Enhanced("colours"))
    assert found["large_by"] == ""
    line = inspect.getsourcelines(Enhanced.__getitem__)[1] + 2
    assert found["large_at"]["line"] == line
    assert found["kept"] == 0.25
    assert found["large_us"] > 0


def test_a_picture_that_is_converted_and_resized_has_no_work_before(board):
    (found,) = seen(board, Photographs("resize"))
    assert found["large_us"] == 0.0


def test_what_all_of_a_picture_is_made_smaller_to_may_be_kept(board):
    (found,) = seen(board, Photographs("resize"))
    assert found["small_bytes"] == 3 * 40 * 30
    assert found["small_us"] > found["decode_us"]
    assert found["asked"]["function"] == "__getitem__"


@pytest.mark.parametrize("how", ["size", "part", "after"])
def test_what_is_drawn_by_lot_is_not_kept(board, how):
    (found,) = seen(board, Drawn(how))
    assert found.get("small_bytes", 0) == 0


def test_a_draft_is_decoded_small(board):
    (found,) = seen(board, Photographs("draft"))
    assert (found["width"], found["times_smaller"]) == (40, 0.0)


def test_a_crop_is_not_made_smaller(board):
    (found,) = seen(board, Photographs("crop"))
    assert found["times_smaller"] == 0.0


def test_pillow_is_as_it_was_after_the_first_pictures(board):
    from PIL import ImageFile

    for _ in range(6):
        seen(board, Photographs("resize"))
    assert board.pictures.over
    assert "_size" not in vars(Image.Image)
    assert "tile" not in vars(ImageFile.ImageFile)
    assert board.pictures.seen <= 64 + 4


def test_pictures_that_are_read_elsewhere_are_not_seen(board):
    Image.open(io.BytesIO(MASK)).resize((10, 10))
    assert board.pictures.record() == []


def test_a_damaged_picture_fails_as_without_us(board):
    photographs = Photographs("resize")
    photographs.file = photographs.file[:2000]
    with pytest.raises(OSError, match="truncated"):
        seen(board, photographs)
    assert board.pictures.record() == []
