"""Leases: the time-limited right of one run or person to use a shared cluster or machine."""
