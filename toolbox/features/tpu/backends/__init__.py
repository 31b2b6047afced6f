"""The backend of this feature."""
