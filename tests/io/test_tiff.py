"""Pages, dimensions, palettes and compressions of TIFF files."""

import importlib.util

import numpy as np
import pytest
import tifffile
from PIL import Image, ImageOps

from torchdeal.io.files import ImageFileError, read, write


def pixels(*shape, dtype="uint8"):
    return np.random.default_rng(0).integers(0, np.iinfo(dtype).max + 1, shape).astype(dtype)


def copied(path):
    """What a file becomes that is read and written again."""
    image = read(path)
    write(path.with_name("copy.tif"), image)
    return tifffile.imread(path.with_name("copy.tif"))


def test_pages_that_were_written_one_by_one(tmp_path):
    pages = pixels(3, 20, 17, 3)
    with tifffile.TiffWriter(tmp_path / "in.tif") as file:
        for page in pages:
            file.write(page, photometric="rgb")
    assert np.array_equal(read(tmp_path / "in.tif").pixels, pages)
    assert np.array_equal(copied(tmp_path / "in.tif"), pages)


@pytest.mark.parametrize("other", [pixels(10, 17, 3), pixels(20, 17), pixels(20, 17, 3, dtype="uint16")])
def test_pages_of_different_kinds_are_refused(tmp_path, other):
    with tifffile.TiffWriter(tmp_path / "in.tif") as file:
        file.write(pixels(20, 17, 3), photometric="rgb")
        file.write(other, photometric="rgb" if other.ndim == 3 else "minisblack")
    with pytest.raises(ImageFileError, match=r"2 pictures of different kinds .* save each as a file"):
        read(tmp_path / "in.tif")


@pytest.mark.parametrize("axes", ["ZCYX", "TZCYX", "TCYX", "ZYX"])
@pytest.mark.parametrize("kind", ["imagej", "ome"])
def test_hyperstacks(tmp_path, axes, kind):
    array = pixels(*(2, 3, 4)[: len(axes) - 2], 20, 17, dtype="uint16")
    path = tmp_path / ("in.ome.tif" if kind == "ome" else "in.tif")
    tifffile.imwrite(path, array, photometric="minisblack", metadata={"axes": axes}, **{kind: True})
    image = read(path)
    assert np.array_equal(image.pixels[..., 0], array.reshape(-1, 20, 17))
    write(tmp_path / "copy.tif", image)
    with tifffile.TiffFile(tmp_path / "copy.tif") as file:
        assert file.series[0].axes == axes
        assert np.array_equal(file.asarray(), array)
        assert getattr(file, f"is_{kind}")


def test_a_stack_of_colour_planes(tmp_path):
    planes = pixels(2, 3, 20, 17)
    tifffile.imwrite(tmp_path / "in.tif", planes, photometric="rgb", planarconfig="separate")
    assert np.array_equal(read(tmp_path / "in.tif").pixels, np.moveaxis(planes, 1, -1))


@pytest.mark.parametrize("kind", ["unspecified", "assocalpha", "unassalpha"])
def test_the_fourth_channel_is_what_the_file_says(tmp_path, kind):
    array = pixels(20, 17, 4)
    tifffile.imwrite(tmp_path / "in.tif", array, photometric="rgb", extrasamples=kind)
    image = read(tmp_path / "in.tif")
    assert image.alpha == (kind != "unspecified")
    assert np.array_equal(copied(tmp_path / "in.tif"), array)
    with tifffile.TiffFile(tmp_path / "copy.tif") as file:
        assert [extra.name.lower() for extra in file.pages[0].extrasamples] == [kind]
        assert file.pages[0].photometric.name == "RGB"
    if kind == "assocalpha":  # PNG would show other colours
        with pytest.raises(ImageFileError, match=r"multiplied by their transparency; write \.tif"):
            write(tmp_path / "out.png", image)


@pytest.mark.parametrize("step", [256, 257])
def test_palettes_become_colours(tmp_path, step):
    indices = pixels(20, 17)
    colours = np.random.default_rng(1).integers(0, 256, (3, 256)).astype(np.uint16)
    tifffile.imwrite(tmp_path / "in.tif", indices, photometric="palette", colormap=colours * step)
    image = read(tmp_path / "in.tif")
    assert image.pixels.dtype == np.uint8
    assert np.array_equal(image.pixels, np.moveaxis(colours[:, indices], 0, -1))


def test_palettes_of_16_bits(tmp_path):
    colours = pixels(3, 256, dtype="uint16")
    tifffile.imwrite(tmp_path / "in.tif", pixels(20, 17), photometric="palette", colormap=colours)
    assert np.array_equal(read(tmp_path / "in.tif").pixels, np.moveaxis(colours[:, pixels(20, 17)], 0, -1))


def test_palettes_of_pillow_mean_the_same_in_each_format(tmp_path):
    quantised = Image.fromarray(pixels(20, 17, 3)).quantize(16)
    for name in ("in.png", "in.bmp", "in.tif"):
        quantised.save(tmp_path / name)
        assert np.array_equal(read(tmp_path / name).pixels, np.asarray(quantised.convert("RGB")))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation(tmp_path, orientation):
    array = pixels(20, 17, 3)
    tifffile.imwrite(tmp_path / "in.tif", array, photometric="rgb", extratags=[(274, 3, 1, orientation, True)])
    exif = Image.Exif()
    exif[274] = orientation
    Image.fromarray(array).save(tmp_path / "in.png", exif=exif)
    with Image.open(tmp_path / "in.png") as image:
        expected = np.asarray(ImageOps.exif_transpose(image))
    for name in ("in.tif", "in.png"):
        assert np.array_equal(read(tmp_path / name).pixels, expected)
    assert np.array_equal(copied(tmp_path / "in.tif"), expected)
    with tifffile.TiffFile(tmp_path / "copy.tif") as file:
        assert file.pages[0].tags.valueof(274, default=1) == 1


def test_bilevel(tmp_path):
    array = pixels(20, 17) > 99
    tifffile.imwrite(tmp_path / "in.tif", array, photometric="minisblack")
    assert np.array_equal(read(tmp_path / "in.tif").pixels, array * np.uint8(255))


def test_compressions(tmp_path):
    array = pixels(20, 17)
    for name in ("tiff_lzw", "tiff_deflate", "packbits"):
        Image.fromarray(array).save(tmp_path / f"{name}.tif", compression=name)
    assert np.array_equal(read(tmp_path / "tiff_deflate.tif").pixels, array)
    if importlib.util.find_spec("imagecodecs"):
        assert np.array_equal(read(tmp_path / "tiff_lzw.tif").pixels, array)
    else:
        with pytest.raises(ImageFileError, match=r"compressed by LZW: pip install 'torchdeal\[tiff\]'"):
            read(tmp_path / "tiff_lzw.tif")


def test_planes_in_other_files_are_not_looked_for(tmp_path):
    tifffile.imwrite(tmp_path / "in.ome.tif", pixels(2, 20, 17), metadata={"axes": "ZYX"})
    with tifffile.TiffFile(tmp_path / "in.ome.tif") as file:
        xml = file.ome_metadata.replace('SizeZ="2"', 'SizeZ="4"').replace(
            '<TiffData IFD="0" PlaneCount="2"/>',
            '<TiffData IFD="0" PlaneCount="2"/><TiffData IFD="0" FirstZ="2" PlaneCount="2">'
            '<UUID FileName="other.ome.tif">urn:uuid:1</UUID></TiffData>',
        )
    tifffile.imwrite(tmp_path / "other.ome.tif", pixels(2, 20, 17), photometric="minisblack")
    tifffile.imwrite(
        tmp_path / "in.ome.tif", pixels(2, 20, 17), metadata=None, description=xml.encode(), photometric="minisblack"
    )
    with pytest.raises(ImageFileError, match=r"in.ome.tif"):
        read(tmp_path / "in.ome.tif")


def test_pages_that_the_description_leaves_out(tmp_path):
    tifffile.imwrite(tmp_path / "in.ome.tif", pixels(3, 20, 17), metadata={"axes": "ZYX"})
    content = (tmp_path / "in.ome.tif").read_bytes()
    content = content.replace(b'SizeZ="3"', b'SizeZ="1"').replace(b'PlaneCount="3"', b'PlaneCount="1"')
    (tmp_path / "in.ome.tif").write_bytes(content)
    with pytest.raises(ImageFileError, match="1 of its 3 pages"):
        read(tmp_path / "in.ome.tif")
