"""What comes in and goes out: arrays, image files, weights. Files are replaced as a whole, and none is executed."""
