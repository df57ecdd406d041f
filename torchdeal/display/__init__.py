"""How results look to a person: in a notebook, in a figure, and while they are computed."""
