"""The service of `deal serve`: pictures in, pictures out, over HTTP.

`gate` decides who may ask, `asked` what can be asked for, `orders` turns files into problems and answers into files,
`worker` solves them, one batch at a time, and `service` joins these for `api`, which has the addresses.
"""
