"""Other libraries: their objects here, ours there. Each module needs its library and is imported where it is used."""
