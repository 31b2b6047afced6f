"""The parts of `report.html`, with its templates and assets. `reports/run_page.py` combines them."""
