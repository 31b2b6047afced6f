"""Leases: which run may use a shared cluster or machine, and until when."""
