"""What files say beside their pixels: kept where a format can hold it, told where it cannot."""

import functools
import struct
import zlib
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
import tifffile
from PIL import Image, ImageCms

from torchdeal.io.files import ImageFile, read, write
from torchdeal.io.metadata import Metadata, TiffExtras

ARTIST, ORIENTATION, CAMERA, EXPOSURE, WIDTH = 0x013B, 0x0112, 0x8769, 0x829A, 0xA002
PIXEL = 0.25  # micrometres


def pixels(*shape, dtype="uint8"):
    return np.random.default_rng(0).integers(0, 200, shape).astype(dtype)


@functools.cache  # it holds the time
def profile():
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def exif(orientation=1):
    fields = Image.Exif()
    fields[ARTIST], fields[ORIENTATION] = "somebody", orientation
    fields.get_ifd(CAMERA).update({EXPOSURE: 0.5, WIDTH: 17})
    return fields


@pytest.fixture
def photo(tmp_path):
    """A JPEG with all that it can hold, turned by a quarter."""
    path = tmp_path / "photo.jpg"
    Image.fromarray(pixels(20, 17, 3)).save(path, exif=exif(6), dpi=(300, 300), icc_profile=profile())
    return path


@pytest.mark.parametrize("name", ["out.jpg", "out.png", "out.webp"])
def test_a_photo_stays_one(photo, name):
    notes = write(photo.with_name(name), read(photo))
    with Image.open(photo.with_name(name)) as image:
        assert image.size == (20, 17)  # upright
        fields = image.getexif()
        assert fields[ARTIST] == "somebody"
        assert fields.get(ORIENTATION, 1) == 1
        assert fields.get_ifd(CAMERA)[EXPOSURE] == 0.5
        assert image.info["icc_profile"] == profile()
        if name != "out.webp":
            assert image.info["dpi"] == pytest.approx((300, 300), rel=1e-3)
    assert notes == (["not kept: the resolution, which WebP cannot hold"] if name == "out.webp" else [])


def test_a_photo_in_tiff_bmp_and_npy(photo):
    image = read(photo)
    notes = {name: write(photo.with_name(name), image) for name in ("out.tif", "out.bmp", "out.npy")}
    with tifffile.TiffFile(photo.with_name("out.tif")) as file:
        page = file.pages[0]
        assert page.tags[ARTIST].value == "somebody"
        assert page.get_resolution(tifffile.RESUNIT.INCH) == pytest.approx((300, 300), rel=1e-3)
        assert page.tags[34675].value == profile()
    with Image.open(photo.with_name("out.bmp")) as picture:
        assert picture.info["dpi"] == pytest.approx((300, 300), rel=1e-3)
    assert notes["out.tif"] == ["not kept: EXIF beyond author, camera and date, which is not written to TIFF"]
    assert notes["out.bmp"] == [f"not kept: {what}, which BMP cannot hold" for what in ("the colour profile", "EXIF")]
    assert notes["out.npy"] == [
        "not kept: the colour profile, which npy cannot hold",
        "not kept: EXIF, which npy cannot hold",
        "not kept: the resolution, which npy cannot hold",
    ]


def test_what_is_not_read_is_told(tmp_path):
    from PIL.PngImagePlugin import PngInfo

    text = PngInfo()
    text.add_text("Title", "a picture")
    Image.fromarray(pixels(20, 17)).save(tmp_path / "in.png", pnginfo=text)
    assert write(tmp_path / "out.png", read(tmp_path / "in.png")) == ["not kept: text in the PNG, which is not read"]
    Image.fromarray(pixels(20, 17, 4), "CMYK").save(tmp_path / "in.jpg", icc_profile=profile())
    assert write(tmp_path / "out.png", read(tmp_path / "in.jpg")) == [
        "colours in CMYK: they are read as RGB",
        "the colour profile: it is that of CMYK, not of RGB",
    ]


def test_a_change_of_colours_is_told_but_palettes_bits_and_transparency_are_not(tmp_path):
    from PIL.PngImagePlugin import PngInfo

    Image.fromarray(pixels(20, 17, 4), "CMYK").save(tmp_path / "in.jpg")
    assert read(tmp_path / "in.jpg").metadata.notes == ("colours in CMYK: they are read as RGB",)
    rgb = Image.fromarray(pixels(20, 17, 3))
    for picture in (rgb, rgb.quantize(16), rgb.convert("1"), rgb.convert("L"), rgb.convert("LA"), rgb.convert("RGBA")):
        picture.save(tmp_path / "in.png", pnginfo=PngInfo())
        assert read(tmp_path / "in.png").metadata.notes == ()
    rgb.save(tmp_path / "in.png", transparency=(1, 2, 3))
    assert read(tmp_path / "in.png").metadata.notes == ()


PRIMARIES = (0.3127, 0.329, 0.68, 0.32, 0.265, 0.69, 0.15, 0.06)


def png_with(path, array, **chunks):
    """A PNG with further chunks, put behind the header by hand."""
    write(path, ImageFile(array))
    content = path.read_bytes()
    parts = [kind.encode() + data for kind, data in chunks.items()]
    added = b"".join(struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part)) for part in parts)
    path.write_bytes(content[:33] + added + content[33:])


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
@pytest.mark.parametrize("shape", [(20, 17), (20, 17, 3)])
def test_what_the_numbers_of_a_png_mean_is_kept(tmp_path, shape, dtype):
    primaries = struct.pack(">8I", *(round(value * 1e5) for value in PRIMARIES))
    png_with(tmp_path / "in.png", pixels(*shape, dtype=dtype), gAMA=struct.pack(">I", 100000), cHRM=primaries)
    image = read(tmp_path / "in.png")
    assert write(tmp_path / "out.png", image) == []
    with Image.open(tmp_path / "out.png") as picture:
        assert picture.info["gamma"] == 1.0
        assert picture.info["chromaticity"] == PRIMARIES
    assert np.array_equal(read(tmp_path / "out.png").pixels, image.pixels)
    assert write(tmp_path / "out.tif", image) == ["gamma and primary colours: TIFF cannot hold them"]
    assert write(tmp_path / "out.npy", image) == ["gamma and primary colours: npy cannot hold them"]


def test_srgb_is_what_other_formats_mean(tmp_path):
    png_with(tmp_path / "in.png", pixels(20, 17, 3), gAMA=struct.pack(">I", 45455), sRGB=b"\1")
    assert write(tmp_path / "out.jpg", read(tmp_path / "in.png")) == []
    assert write(tmp_path / "out.png", read(tmp_path / "in.png")) == []
    with Image.open(tmp_path / "out.png") as picture:
        assert (picture.info["srgb"], picture.info["gamma"]) == (1, 0.45455)


def test_a_resolution_that_does_not_fit(tmp_path):
    microscope = ImageFile(pixels(20, 17), metadata=Metadata(dpi=(25400 / 0.065,) * 2))
    assert write(tmp_path / "out.jpg", microscope) == ["not kept: the resolution, which JPEG cannot hold"]
    assert write(tmp_path / "out.png", microscope) == []
    assert read(tmp_path / "out.png").metadata.dpi == pytest.approx(microscope.metadata.dpi, rel=1e-6)


def imagej(path, **more):
    options = {"imagej": True, "resolution": (1 / PIXEL, 1 / PIXEL)}
    details = {"axes": "ZCYX", "unit": "um", "spacing": 0.5, "finterval": 2.5, "Info": "a cell", "Labels": ["a"] * 6}
    tifffile.imwrite(path, pixels(3, 2, 20, 17, dtype="uint16"), metadata={**details, **more}, **options)


def test_imagej(tmp_path):
    imagej(tmp_path / "in.tif", min=3.0, max=99.0)
    assert write(tmp_path / "out.tif", read(tmp_path / "in.tif")) == []
    with tifffile.TiffFile(tmp_path / "in.tif") as before, tifffile.TiffFile(tmp_path / "out.tif") as after:
        assert after.imagej_metadata == before.imagej_metadata
        assert after.series[0].axes == "ZCYX"
        assert after.pages[0].resolution == before.pages[0].resolution
        assert after.pages[0].resolutionunit == before.pages[0].resolutionunit
        assert np.array_equal(after.asarray(), before.asarray())


def test_gray_values_that_imagej_shows_in_colours_stay_gray_values(tmp_path):
    green = np.zeros((3, 256), np.uint16)
    green[1] = np.arange(256) * 257
    tifffile.imwrite(tmp_path / "in.tif", pixels(20, 17), imagej=True, colormap=green)
    with tifffile.TiffFile(tmp_path / "in.tif") as file:
        assert file.pages[0].photometric == tifffile.PHOTOMETRIC.PALETTE
    assert np.array_equal(read(tmp_path / "in.tif").pixels, pixels(20, 17))
    write(tmp_path / "out.tif", read(tmp_path / "in.tif"))
    with tifffile.TiffFile(tmp_path / "out.tif") as file:
        assert np.array_equal(file.pages[0].colormap, green)
        assert np.array_equal(file.asarray(), pixels(20, 17))


def test_micrometres_become_dots_per_inch_and_pixels_of_ome(tmp_path):
    imagej(tmp_path / "in.tif")
    image = read(tmp_path / "in.tif")
    assert image.metadata.dpi == pytest.approx((25400 / PIXEL,) * 2)
    write(tmp_path / "out.ome.tif", image)
    with tifffile.TiffFile(tmp_path / "out.ome.tif") as file:
        assert file.series[0].axes == "ZCYX"
        assert np.array_equal(file.asarray(), pixels(3, 2, 20, 17, dtype="uint16"))
        attributes = ome_pixels(file.ome_metadata)
    assert float(attributes["PhysicalSizeX"]) == pytest.approx(PIXEL)
    assert attributes["PhysicalSizeXUnit"] == "µm"
    assert read(tmp_path / "out.ome.tif").metadata.dpi == pytest.approx(image.metadata.dpi)


def test_imagej_in_ome(tmp_path):
    imagej(tmp_path / "in.tif", min=3.0, max=99.0)
    notes = write(tmp_path / "out.ome.tif", read(tmp_path / "in.tif"))
    assert notes == ["Info, Labels, max, min, mode of ImageJ: OME-TIFF is written without them"]
    with tifffile.TiffFile(tmp_path / "out.ome.tif") as file:
        attributes = ome_pixels(file.ome_metadata)
    assert (float(attributes["PhysicalSizeZ"]), attributes["PhysicalSizeZUnit"]) == (0.5, "µm")
    assert (float(attributes["TimeIncrement"]), attributes["TimeIncrementUnit"]) == (2.5, "s")


def test_lengths_in_units_that_are_not_known_are_missed_in_ome(tmp_path):
    imagej(tmp_path / "in.tif", unit="ells")
    notes = write(tmp_path / "out.ome.tif", read(tmp_path / "in.tif"))
    assert notes == ["Info, Labels, mode, spacing, unit of ImageJ: OME-TIFF is written without them"]
    with tifffile.TiffFile(tmp_path / "out.ome.tif") as file:
        assert not [name for name in ome_pixels(file.ome_metadata) if name.startswith("Physical")]


def test_details_of_tifffile_and_descriptions_in_ome(tmp_path):
    tifffile.imwrite(tmp_path / "in.tif", pixels(20, 17), metadata={"dose": 7, "frames": "odd"})
    notes = write(tmp_path / "out.ome.tif", read(tmp_path / "in.tif"))
    assert notes == ["dose, frames of tifffile: OME-TIFF is written without them"]
    tifffile.imwrite(tmp_path / "in.tif", pixels(20, 17), metadata=None, description="a field & more")
    assert write(tmp_path / "out.ome.tif", read(tmp_path / "in.tif")) == []
    with tifffile.TiffFile(tmp_path / "out.ome.tif") as file:
        texts = [one.text for one in ElementTree.fromstring(file.ome_metadata).iter() if "Description" in one.tag]
    assert texts == ["a field & more"]


def ome_pixels(xml, number=0):
    return [element.attrib for element in ElementTree.fromstring(xml).iter() if element.tag.endswith("}Pixels")][number]


@pytest.mark.parametrize("shape", [(3, 2, 20, 17), (3, 20, 17, 3)])
@pytest.mark.parametrize("magnification", [1, 2])
def test_several_images_of_ome(tmp_path, caplog, shape, magnification):
    images = [pixels(*shape), 255 - pixels(*shape)]
    colour = shape[-1] == 3
    with tifffile.TiffWriter(tmp_path / "in.ome.tif", ome=True) as file:
        for number, image in enumerate(images, 1):
            sizes = {"PhysicalSizeX": PIXEL * number, "PhysicalSizeY": PIXEL * number}
            details = {"axes": "ZYXS" if colour else "ZCYX", "Name": f"number {number}", **sizes}
            file.write(image, photometric="rgb" if colour else "minisblack", metadata=details)
    image = read(tmp_path / "in.ome.tif")
    larger = image.pixels.repeat(magnification, 1).repeat(magnification, 2)
    metadata = image.metadata.enlarged(magnification, larger.shape[1:3])
    assert write(tmp_path / "out.ome.tif", replace(image, pixels=larger, metadata=metadata)) == []
    with tifffile.TiffFile(tmp_path / "out.ome.tif") as file:
        assert [series.name for series in file.series] == ["number 1", "number 2"]
        for number, (series, before) in enumerate(zip(file.series, images, strict=True)):
            rows = 1 if colour else 2
            expected = before.repeat(magnification, rows).repeat(magnification, rows + 1)
            assert series.kind == "ome"
            assert np.array_equal(series.asarray(), expected)
            attributes = ome_pixels(file.ome_metadata, number)
            assert float(attributes["PhysicalSizeX"]) == PIXEL * (number + 1) / magnification
            assert attributes["SizeX"] == str(17 * magnification)
    assert [record for record in caplog.records if record.name == "tifffile"] == []


@pytest.mark.parametrize("channels", [2, 4])
def test_ome_that_does_not_fit_does_not_cost_the_result(tmp_path, channels):
    kind = {"photometric": "rgb" if channels == 4 else "minisblack", "planarconfig": "contig"}
    array = pixels(20, 17, channels)
    tifffile.imwrite(tmp_path / "in.ome.tif", array, extrasamples=["unassalpha"], metadata={"axes": "YXS"}, **kind)
    image = read(tmp_path / "in.ome.tif")
    assert write(tmp_path / "whole.ome.tif", image) == []
    note, other = write(tmp_path / "out.ome.tif", image.without_alpha("it is gone"))
    assert note == "it is gone"
    assert other.startswith("metadata: it could not be written (the OME-XML is")
    assert np.array_equal(tifffile.imread(tmp_path / "whole.ome.tif"), array)
    assert np.array_equal(tifffile.imread(tmp_path / "out.ome.tif"), array[..., :-1].squeeze())


@pytest.fixture
def ome(tmp_path):
    sizes = {f"PhysicalSize{axis}": PIXEL for axis in "XY"} | {f"PhysicalSize{axis}Unit": "µm" for axis in "XY"}
    details = {"axes": "ZCYX", "Channel": {"Name": ["nucleus", "wall"]}, "Description": "a cell", **sizes}
    tifffile.imwrite(tmp_path / "in.ome.tif", pixels(3, 2, 20, 17, dtype="uint16"), metadata=details)
    return tmp_path / "in.ome.tif"


@pytest.mark.parametrize("name", ["out.ome.tif", "out.tif"])
def test_ome(ome, name):
    assert write(ome.with_name(name), read(ome)) == []
    with tifffile.TiffFile(ome) as before, tifffile.TiffFile(ome.with_name(name)) as after:
        assert after.series[0].kind == "ome"
        assert after.series[0].axes == "ZCYX"
        assert np.array_equal(after.asarray(), before.asarray())
        assert ome_pixels(after.ome_metadata) == ome_pixels(before.ome_metadata)
        for word in ("nucleus", "wall", "a cell"):
            assert word in after.ome_metadata


def test_stacks_of_all_kinds_become_ome(tmp_path):
    stack = pixels(4, 20, 17, 1)
    for image in (ImageFile(stack), ImageFile(stack, dimensions=(2, 2)), ImageFile(pixels(20, 17, 3))):
        write(tmp_path / "out.ome.tif", image)
        with tifffile.TiffFile(tmp_path / "out.ome.tif") as file:
            assert file.series[0].kind == "ome"
            assert np.array_equal(file.asarray(), image.pixels[..., 0] if image.channels == 1 else image.pixels)


def test_larger_pictures_have_smaller_pixels(ome, tmp_path):
    imagej(tmp_path / "in.tif", ROI=b"Iout" + bytes(60))
    for path in (ome, tmp_path / "in.tif"):
        image = read(path)
        metadata = image.metadata.enlarged(2, (40, 34))
        larger = image.pixels.repeat(2, 1).repeat(2, 2)
        notes = write(tmp_path / "out.tif", ImageFile(larger, dimensions=image.dimensions, metadata=metadata))
        assert notes == ([] if path == ome else ["regions of interest: they are those of the input"])
        assert read(tmp_path / "out.tif").metadata.dpi == pytest.approx((2 * 25400 / PIXEL,) * 2)
        assert read(tmp_path / "out.tif").pixels.shape == (6, 40, 34, 1)


def test_exif_of_a_larger_picture(photo):
    image = read(photo)
    metadata = image.metadata.enlarged(2, (34, 40))
    write(photo.with_name("out.jpg"), ImageFile(image.pixels.repeat(2, 0).repeat(2, 1), metadata=metadata))
    with Image.open(photo.with_name("out.jpg")) as picture:
        assert picture.getexif().get_ifd(CAMERA)[WIDTH] == 40
        assert picture.info["dpi"] == pytest.approx((600, 600), rel=1e-3)


def test_tags_of_others_are_kept_in_tiff_and_missed_elsewhere(tmp_path):
    scale = (33550, 12, 3, (0.5, 0.5, 0.0), True)  # of a map
    tags = [(315, 2, 0, "somebody", True), (65000, 3, 2, (7, 8), True), scale]
    texts = {"description": "a field", "software": "a scanner", "datetime": "2020:01:02 03:04:05"}
    tifffile.imwrite(tmp_path / "in.tif", pixels(20, 17), metadata=None, extratags=tags, **texts)
    image = read(tmp_path / "in.tif")
    assert write(tmp_path / "out.tif", image) == []
    with tifffile.TiffFile(tmp_path / "out.tif") as file:
        found = {code: file.pages[0].tags[code].value for code in (270, 305, 306, 315, 65000, 33550)}
    assert list(found.values()) == [*texts.values(), "somebody", (7, 8), (0.5, 0.5, 0.0)]
    assert write(tmp_path / "out.png", image) == ["not kept: further TIFF tags, which PNG cannot hold"]
    with Image.open(tmp_path / "out.png") as picture:
        assert picture.getexif()[ARTIST] == "somebody"
    assert "a map" in " ".join(image.metadata.enlarged(2, (40, 34)).notes)


def test_metadata_that_cannot_be_written_do_not_cost_the_result(tmp_path):
    wrong = TiffExtras(software="imagej", axes="QQ", details={"spacing": "?"}, tags=((65000, 3, 9, (7,), True),))
    image = ImageFile(pixels(4, 20, 17, 1), dimensions=(2, 2), metadata=Metadata(tiff=wrong))
    (note,) = write(tmp_path / "out.tif", image)
    assert note.startswith("metadata: it could not be written")
    assert np.array_equal(tifffile.imread(tmp_path / "out.tif").reshape(4, 20, 17, 1), image.pixels)


def test_odd_metadata_do_not_keep_a_picture_from_being_read(ome):
    content = ome.read_bytes()
    assert content.count(b'PhysicalSizeX="0.25"') == 1
    ome.write_bytes(content.replace(b'PhysicalSizeX="0.25"', b'PhysicalSizeX="huge"'))
    assert read(ome).metadata.dpi is None
    path = ome.with_name("in.tif")
    tifffile.imwrite(path, pixels(20, 17), resolution=((1, 1), (300, 1)), resolutionunit=2)
    with tifffile.TiffFile(path, mode="r+") as file:
        file.pages[0].tags[282].overwrite((300, 0))
    assert read(path).metadata.dpi is None
    assert np.array_equal(read(path).pixels, pixels(20, 17))


def test_the_resolution_turns_with_the_picture(tmp_path):
    Image.fromarray(pixels(20, 17)).save(tmp_path / "in.png", exif=exif(6), dpi=(300, 100))
    tags = [(274, 3, 1, 6, True)]
    tifffile.imwrite(tmp_path / "in.tif", pixels(20, 17), resolution=(300, 100), resolutionunit=2, extratags=tags)
    for name in ("in.png", "in.tif"):
        assert read(tmp_path / name).metadata.dpi == pytest.approx((100, 300), rel=1e-3)


def test_descriptions_of_single_pages_are_missed(tmp_path):
    with tifffile.TiffWriter(tmp_path / "in.tif") as file:
        for number in range(3):
            file.write(pixels(20, 17), description=f"after {number} s", metadata=None, contiguous=False)
    notes = write(tmp_path / "out.tif", read(tmp_path / "in.tif"))
    assert notes == ["what is told of single pages: it is kept of the first alone"]
    with tifffile.TiffFile(tmp_path / "out.tif") as file:
        assert file.pages[0].description == "after 0 s"
