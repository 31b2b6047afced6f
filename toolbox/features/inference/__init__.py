"""Tests and loads of inference servers: case files, cells, and the judgement. Only `client` connects to servers."""
