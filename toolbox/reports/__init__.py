"""Reports: how a run is shown, one package per product. What is shown comes from the events or the journal."""
