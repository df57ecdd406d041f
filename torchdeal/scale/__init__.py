"""Images of any size: by tiles with overlap, whose result is that of the whole image within a stated tolerance.

`grid` cuts, `local` says what an operator is on a part of the image, `reach` how far information travels, `tiles` does
one tile and all of them, `stores` reads and writes files chunk by chunk.
"""
