"""Sources of metrics: one module a source, found by its name (`source: json_file`).

A source is a pydantic model named `Source` with a method `read(directory)` that returns a number.
"""
