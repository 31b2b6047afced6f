"""The section of the report page of this feature."""
