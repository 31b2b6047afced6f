"""The merge of the runs of shards into one run."""
