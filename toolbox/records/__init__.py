"""What is kept: the files of runs, the store of all runs, leases, exports, and the merge of shards."""
