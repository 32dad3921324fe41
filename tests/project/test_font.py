"""The letters of pictures: class names of many languages, cut where they do not fit."""

import numpy as np
from PIL import Image, ImageDraw

from jaxtrain.font import fitted, font
from jaxtrain.tasks.pictures import MARGIN, draw_matrix
from tests.helpers.rows import each_row


def drawn(text: str) -> bytes:
    picture = Image.new("L", (200, 20), 255)
    ImageDraw.Draw(picture).text((2, 2), text, fill=0, font=font())
    return picture.tobytes()


def test_letters_of_many_languages_have_shapes_of_their_own():
    letters = "aäöüßÄÖÜéłžőñøçğİдЖΩλעب"
    missing = drawn("\U0010ffff")
    shapes = {drawn(letter) for letter in letters}
    assert len(shapes) == len(letters) and missing not in shapes


@each_row("width", [0, 20, 60, 500])
def test_names_are_cut_to_their_place(width: int):
    for name in ("Hühner", "Straßenlaternenpfahl\nzwei", "iiiiiiiiii", "WWWWWWWWWW"):
        text = fitted(name, width)
        assert "\n" not in text
        if text == name.replace("\n", "\\n"):
            assert font().getlength(text) <= width
        else:
            assert text.endswith("…")
            assert font().getlength(text) <= max(width, font().getlength("…"))


def test_a_matrix_shows_umlauts():
    """With Pillow's own font all letters but those of English look alike."""
    counts = np.ones((2, 2), int)
    pictures = [draw_matrix(counts, [name, "x"]) for name in ("Äü", "Öü")]
    left = [picture[MARGIN:, :MARGIN] for picture in pictures]
    assert (left[0] != left[1]).any()
