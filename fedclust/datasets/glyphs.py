"""Characters drawn from matplotlib's fonts: data that is always there."""

from functools import lru_cache
from pathlib import Path
from typing import Annotated

import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor
from torch.nn import functional as F

from fedclust.checks import Whole, checked, require
from fedclust.paths import short
from fedclust.rng import stream

DIGITS, UPPER, LOWER = "0123456789", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"
BY_MERGE = DIGITS + UPPER + "abdefghnqrt"  # EMNIST's 47 classes
CHARACTERS = {10: DIGITS, 47: BY_MERGE, 62: DIGITS + UPPER + LOWER}
DEJAVU = "Sans Sans-Bold Sans-Oblique SansMono Serif Serif-Italic"
OTHERS = "STIXGeneral STIXGeneralBol STIXGeneralItalic cmr10 cmb10 cmss10 cmtt10 cmti10"
FACES = [*(f"DejaVu{face}" for face in DEJAVU.split()), *OTHERS.split()]
FINE = 64  # pixels of the fine drawing that all samples of a character in a face are taken from
WEIGHTS = 3  # stroke weights: as designed, thickened, thickened twice
Many = Annotated[int, "[0, 1_000_000]"]  # samples that still fit into memory
CHUNK = 2048  # samples drawn at a time; part of what a seed means


@lru_cache(maxsize=4)
def drawings(characters: str) -> Tensor:
    """Every character in every face and stroke weight, centred: (c, face, weight, FINE, FINE)."""
    import matplotlib  # here, because it is slow to import and only its folder is needed

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    fonts = [ImageFont.truetype(str(folder / f"{face}.ttf"), 48) for face in FACES]
    sheet = Image.new("L", (FINE * len(fonts), FINE * len(characters)))
    pen = ImageDraw.Draw(sheet)
    for row, character in enumerate(characters):
        for column, font in enumerate(fonts):
            left, top, right, bottom = pen.textbbox((0, 0), character, font=font)
            x = (column + 0.5) * FINE - (left + right) / 2
            y = (row + 0.5) * FINE - (top + bottom) / 2
            pen.text((x, y), character, font=font, fill=255)
    pixels = torch.frombuffer(bytearray(sheet.tobytes()), dtype=torch.uint8)
    fine = pixels.view(len(characters), FINE, len(fonts), FINE).transpose(1, 2).float()
    weights = [fine]
    for _ in range(WEIGHTS - 1):
        weights.append(F.max_pool2d(weights[-1], 3, stride=1, padding=1))
    stacked = torch.stack(weights, 2).flatten(0, 2)
    soft = F.avg_pool2d(stacked, 3, stride=1, padding=1)  # so that smaller ones have smooth edges
    return soft.round().byte().view(len(characters), len(fonts), WEIGHTS, FINE, FINE)


@checked
def draw(
    n: Many, classes: int = 10, color: bool = False, seed: Whole = 0, half: str = "train"
) -> tuple[Tensor, Tensor]:
    """Balanced classes: x (n, 1, 28, 28) or in colour (n, 3, 32, 32), uint8; y (n,) int64."""
    known = type(classes) is int and classes in CHARACTERS
    require(known, f"classes={short(classes)}: must be 10, 47 or 62, as many as glyphs have")
    size, channels = (32, 3) if color else (28, 1)
    fine = drawings(CHARACTERS[classes])
    order = torch.randperm(n, generator=stream(seed, "glyphs", half, "order"))
    y = torch.arange(n)[order] % classes
    x = torch.empty(n, channels, size, size, dtype=torch.uint8)
    for start in range(0, n, CHUNK):
        draws = stream(seed, "glyphs", half, start)
        image = sample(fine, y[start : start + CHUNK], size, draws)  # (n, 1, size, size) in [0, 1]
        if color:
            image = on_texture(image, draws)
        else:
            image = image + 0.04 * torch.randn(image.shape, generator=draws)
        x[start : start + CHUNK] = image.clamp(0, 1).mul(255).round().byte()
    return x, y


def sample(fine: Tensor, y: Tensor, size: int, draws: torch.Generator) -> Tensor:
    """One drawing per label, scaled, shifted, slanted, turned and bent: (n, 1, size, size)."""
    n = len(y)

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(n, generator=draws)

    face = torch.randint(fine.shape[1], (n,), generator=draws)
    weight = torch.randint(fine.shape[2], (n,), generator=draws)
    wide, high = uniform(0.95, 1.45), uniform(0.95, 1.45)
    slant, turn = uniform(-0.35, 0.35), uniform(-0.2, 0.2)
    cos, sin, zero = turn.cos(), turn.sin(), torch.zeros(n)
    stretch = torch.stack([1 / wide, slant, zero, 1 / high], 1).view(n, 2, 2)
    rotation = torch.stack([cos, -sin, sin, cos], 1).view(n, 2, 2)
    shift = torch.stack([uniform(-0.15, 0.15), uniform(-0.15, 0.15)], 1)[..., None]
    affine = torch.cat([stretch @ rotation, shift], 2)  # (n, 2, 3)
    grid = F.affine_grid(affine, [n, 1, size, size], align_corners=False)  # (n, size, size, 2)
    bend = 0.04 * torch.randn(n, 2, 4, 4, generator=draws)
    grid = grid + F.interpolate(bend, size=size, mode="bilinear").permute(0, 2, 3, 1)
    ink = F.grid_sample(fine[y, face, weight][:, None] / 255, grid, align_corners=False)
    return ink * uniform(0.7, 1.0).view(n, 1, 1, 1)


def on_texture(ink: Tensor, draws: torch.Generator) -> Tensor:
    """Coloured glyphs on darker, textured ground: (n, 1, s, s) -> (n, 3, s, s)."""
    n, size = len(ink), ink.shape[-1]
    ground = 0.5 * torch.rand(n, 3, 1, 1, generator=draws)
    paint = ground + 0.2 + 0.3 * torch.rand(n, 3, 1, 1, generator=draws)
    coarse = torch.randn(n, 3, 6, 6, generator=draws)
    grain = torch.randn(n, 3, size, size, generator=draws)
    texture = 0.1 * F.interpolate(coarse, size=size, mode="bilinear") + 0.04 * grain
    return torch.lerp(ground, paint, ink) + texture
