"""Connections to clusters (see `toolbox.orchestration.cluster_connections.ClusterConnection`)."""
