"""Sections of the page of a run (see `toolbox.reports.page.sections.PageSection`)."""
