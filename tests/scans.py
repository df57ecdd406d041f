"""Files of scanners, made by the libraries that people read them with."""

import numpy as np


def slices(count=3, size=24, sigma=30.0, seed=0):
    """A disk in air that grows from slice to slice, with noise, around -1000 and 40: Hounsfield units."""
    along = np.arange(size) - size / 2
    radius = np.hypot(along[:, None], along)
    clean = np.stack([np.where(radius < size / 4 + number / 2, 40.0, -1000.0) for number in range(count)])
    return clean + np.random.default_rng(seed).normal(0, sigma, clean.shape)


def write_nifti(path, volume, affine=None, slope=1.0, intercept=0.0, dtype=np.int16):
    """`(slices, rows, columns)` in the units of the data; axes as MRI has them."""
    import nibabel

    stored = (volume - intercept) / slope
    stored = stored.round().astype(dtype) if np.dtype(dtype).kind == "i" else stored.astype(dtype)
    image = nibabel.Nifti1Image(stored.T, np.diag([1.5, 2, 3, 1]) if affine is None else affine)
    image.header["descrip"] = b"a scan"
    image.header.set_xyzt_units("mm", "sec")
    image.header.extensions.append(nibabel.nifti1.Nifti1Extension(6, b"a comment"))
    image.header.set_slope_inter(slope, intercept)
    image.to_filename(path)


def write_dicom(path, image, place=0.0, slope=1.0, intercept=-1024.0, bits=12, series="1.2.3", **tags):
    """A slice `(rows, columns)`, or several frames, in the units of the data."""
    import pydicom
    from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian

    dataset = pydicom.Dataset()
    dataset.file_meta = pydicom.dataset.FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = tags.pop("TransferSyntaxUID", ExplicitVRLittleEndian)
    dataset.SOPClassUID, dataset.SOPInstanceUID = CTImageStorage, f"{series}.{round(1000 * (place + 100))}"
    dataset.file_meta.MediaStorageSOPClassUID = CTImageStorage
    dataset.file_meta.MediaStorageSOPInstanceUID = dataset.SOPInstanceUID
    dataset.SeriesInstanceUID, dataset.StudyInstanceUID = series, "1.9"
    dataset.PatientName, dataset.Modality, dataset.SeriesDescription = "Nobody", "CT", "Head"
    dataset.ImageType = ["ORIGINAL", "PRIMARY", "AXIAL"]
    dataset.ImageOrientationPatient, dataset.ImagePositionPatient = [1, 0, 0, 0, 1, 0], [0, 0, place]
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, "MONOCHROME2"
    dataset.Rows, dataset.Columns = image.shape[-2:]
    if image.ndim == 3:
        dataset.NumberOfFrames = len(image)
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit, dataset.PixelRepresentation = 16, bits, bits - 1, 0
    dataset.RescaleSlope, dataset.RescaleIntercept = slope, intercept
    stored = ((image - intercept) / slope).round().clip(0, 2**bits - 1).astype("<u2")
    dataset.PixelData = stored.tobytes()
    for name, value in tags.items():
        setattr(dataset, name, value)
    dataset.save_as(path, enforce_file_format=True)


def in_units(path):
    """What the pixels of a DICOM file mean, by pydicom."""
    import pydicom
    from pydicom.pixels import apply_rescale

    dataset = pydicom.dcmread(path)
    return apply_rescale(dataset.pixel_array, dataset)
