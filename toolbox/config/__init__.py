"""The configuration of a project: documents, paths, presets, references, contracts, and provenance."""
