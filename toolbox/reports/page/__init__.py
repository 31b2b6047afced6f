"""The parts of `report.html`, which `reports/run_page.py` puts together, with its templates and assets."""
