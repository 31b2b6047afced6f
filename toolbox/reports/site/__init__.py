"""The dashboard: a static site of all projects, with its templates and assets."""
