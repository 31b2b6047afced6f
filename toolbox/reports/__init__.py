"""Reports: how a run is shown. One file a report; what is shown comes from the events or the journal."""
