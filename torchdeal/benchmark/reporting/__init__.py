"""How results are shown: statistics, tables, the report of a folder, and the tables of the documents."""
