"""Ansible modules of ours, for roles that need more of a cluster than `kubectl` gives. Ansible finds them by name."""
