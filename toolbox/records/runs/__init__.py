"""A run on disk: its directory, its numbered steps, its journal, and what is derived from the journal."""
