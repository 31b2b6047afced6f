"""The kinds of remote resources: each module deletes the resources of one kind."""
