"""The local web page of `deal app`: a picture in, the result with what is known about it.

`server` answers requests, `visits` keeps what a person brought, `errands` does the work, one thing at a time.
"""
